// The emulated device: what a device promises, and the rules that a kernel must keep.
#include "kernels/emu/emulated_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "kernels/tiles/angles.h"
#include "kernels/tiles/fragment.h"
#include "kernels/tiles/shared_tile.h"
#include "tensor/dtype.h"

namespace redline::emu {
namespace {

using tiles::Lanes;
using tiles::Warp;

/// One block of `warps` warps with 1 KiB of shared memory and two mbarriers: of 1 arrival, and of `warps`.
Status run_block(int warps, const std::function<void(Warp&, Block&, int)>& body, const MemoryMap& memory = {},
                 uint64_t seed = 0) {
  Machine machine(memory);
  static thread_local int count;
  count = warps;
  const auto prepare = [](Block& block) {
    Warp warp(block, 0);
    warp.barrier_init(0, 1);
    warp.barrier_init(1, count);
  };
  return machine.run({.blocks = 1, .warps = warps, .shared_bytes = 1024, .barriers = 2, .prepare = prepare},
                     {.seed = seed}, [&](Block& block, int w) {
                       Warp warp(block, w);
                       body(warp, block, w);
                     });
}

TEST(EmulatedDevice, ACopyArrivesLateOverPoison) {
  alignas(16) uint8_t source[64];
  for (int i = 0; i < 64; ++i) source[i] = static_cast<uint8_t>(i);
  MemoryMap memory;
  memory.add(source, sizeof(source), true);
  for (const uint64_t seed : {0, 1, 2, 3}) {
    uint8_t before = 0, after = 0;
    const Status status = run_block(
        1,
        [&](Warp& w, Block& block, int) {
          block.shared[5] = 99;
          w.barrier_expect(0, 64);
          w.bulk_copy(0, source, 64, 0);
          before = block.shared[5];
          w.barrier_wait(0, 0);
          after = block.shared[5];
        },
        memory, seed);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(before, 0xff);
    EXPECT_EQ(after, 5);
  }
}

TEST(EmulatedDevice, ABarrierCountsArrivalsAndBytes) {
  std::vector<int> order;
  const Status status = run_block(4, [&](Warp& w, Block&, int warp) {
    if (warp == 3) {
      w.barrier_wait(1, 0);  // of all four, so it needs its own arrival too
    } else {
      order.push_back(warp);
      w.barrier_arrive(1);
    }
  });
  EXPECT_THAT(status.message(), ::testing::HasSubstr("no thread can run"));
  EXPECT_THAT(status.message(), ::testing::HasSubstr("mbarrier 1 parity 0: phase 0, 1 arrivals and 0 bytes missing"));
  EXPECT_EQ(order.size(), 3u);
}

TEST(EmulatedDevice, ParityTellsPhasesApart) {
  int passed = 0;
  const Status status = run_block(2, [&](Warp& w, Block&, int warp) {
    if (warp == 1) {
      for (int i = 0; i < 3; ++i) w.barrier_arrive(0);  // three phases
      return;
    }
    w.barrier_wait(0, 1);  // the phase before the first is complete
    ++passed;
    w.barrier_wait(0, 0);
    ++passed;
  });
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(passed, 2);
}

TEST(EmulatedDevice, BrokenRulesAreErrors) {
  alignas(16) static uint8_t constant[64];
  alignas(16) static uint8_t written[64];
  MemoryMap memory;
  memory.add(constant, sizeof(constant), true);
  memory.add(written, sizeof(written), false);
  const auto message = [&](const std::function<void(Warp&, Block&, int)>& body) {
    return run_block(1, body, memory).message();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message([](Warp& w, Block&, int) {
                w.barrier_arrive(0);
                w.barrier_expect(0, 64);
                w.bulk_copy(0, written, 64, 0);
              }),
              HasSubstr("reads memory that kernels write"));
  EXPECT_THAT(message([](Warp& w, Block&, int) { w.bulk_copy(8, constant, 16, 0); }), HasSubstr("units of 16 bytes"));
  EXPECT_THAT(message([](Warp& w, Block&, int) { w.bulk_copy(1008, constant, 32, 0); }), HasSubstr("1040 of 1024"));
  EXPECT_THAT(message([](Warp& w, Block&, int) { w.load_shared<float>(Lanes<uint32_t>(1024u)); }),
              HasSubstr("shared memory"));
  EXPECT_THAT(message([](Warp& w, Block&, int) {
                w.store(reinterpret_cast<float*>(constant), tiles::lane_index() % 4, Lanes<float>(1.0f));
              }),
              HasSubstr("outside the memory that it may write"));
  EXPECT_THAT(message([](Warp& w, Block&, int) {
                w.store(reinterpret_cast<float*>(written), tiles::lane_index(), Lanes<float>(1.0f));
              }),
              HasSubstr("outside the memory that it may write"));
  EXPECT_THAT(message([](Warp& w, Block&, int) {
                w.barrier_expect(0, 64);
                w.bulk_copy(0, constant, 64, 0);
              }),
              HasSubstr("before 1 of its copies arrived"));
}

TEST(EmulatedDevice, StoresAreVisibleToOthersAfterARelease) {
  float value = 1;
  uint64_t counter = 0;
  MemoryMap memory;
  memory.add(&value, sizeof(value), false);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    value = 1;
    counter = 0;
    float own = 0, other = 0;
    Machine machine(memory);
    const Status status = machine.run({.blocks = 2, .warps = 1}, {.seed = seed}, [&](Block& block, int w) {
      Warp warp(block, w);
      if (block.index == 0) {
        warp.store(&value, Lanes<int>(0), Lanes<float>(2.0f));
        own = warp.load_uniform(&value);
        other = value;
        warp.event_release(&counter);
      } else {
        warp.event_wait(&counter, 1);
        EXPECT_EQ(warp.load_uniform(&value), 2);
      }
    });
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(own, 2);
    EXPECT_EQ(other, 1);
  }
}

// Rounded to float32 once, up to the series and the reduction, below 2^-34.
TEST(TileLanes, SinesOfAllAngles) {
  std::mt19937 random(3);
  std::vector<float> angles = {0.0f, -0.0f, 0x1p-140f, 0.785398185f, 1.57079637f, 3.14159274f, 355.0f, 0x1.fffffep30f};
  for (int exponent = -20; exponent < 31; ++exponent)
    for (int i = 0; i < 8; ++i)
      angles.push_back(std::ldexp(1 + static_cast<float>(random() % 1000000) * 1e-6f, exponent) *
                       (i % 2 == 0 ? 1 : -1));
  for (const float angle : angles) {
    const tiles::SineCosine got = tiles::sine_cosine(Lanes<float>(angle));
    EXPECT_NEAR(got.sine.v[7], std::sin(double{angle}), 0x1p-24) << angle;
    EXPECT_NEAR(got.cosine.v[7], std::cos(double{angle}), 0x1p-24) << angle;
  }
}

TEST(TileLanes, HalvesRoundAsTheHostRoundsThem) {
  for (uint32_t first = 0; first < 65536; first += tiles::kWarpLanes) {
    const Lanes<uint32_t> bits = Lanes<uint32_t>(first) + tiles::convert<uint32_t>(tiles::lane_index());
    const Lanes<float> half = tiles::f16_to_float(bits), brain = tiles::bf16_to_float(bits);
    const Lanes<uint32_t> back = tiles::float_to_f16(half), brain_back = tiles::float_to_bf16(brain);
    for (int i = 0; i < tiles::kWarpLanes; ++i) {
      const float want = f16_to_f32(static_cast<uint16_t>(bits.v[i]));
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(half.v[i]));
        EXPECT_TRUE(std::isnan(f16_to_f32(static_cast<uint16_t>(back.v[i]))));
      } else {
        EXPECT_EQ(half.v[i], want);
        EXPECT_EQ(back.v[i], bits.v[i]);
      }
      if (!std::isnan(brain.v[i])) {
        EXPECT_EQ(brain_back.v[i], bits.v[i]);
      }
    }
  }
  std::mt19937 random(1);
  for (int n = 0; n < 20000; ++n) {
    const float x = std::ldexp(static_cast<float>(random()) * 0x1p-32f * (n % 2 ? 1.0f : -1.0f), n % 50 - 30);
    EXPECT_EQ(tiles::float_to_f16(Lanes<float>(x)).v[0], f32_to_f16(x)) << x;
    EXPECT_EQ(tiles::float_to_bf16(Lanes<float>(x)).v[0], f32_to_bf16(x)) << x;
  }
}

// Fragments are filled element by element, as the PTX manual places them, and the product compared in float64.
TEST(TileFragment, AProductHasTheOrderOfTheManual) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  double a[16][16], b[16][8], c[16][8];
  const auto number = [&] { return static_cast<double>(bf16_to_f32(f32_to_bf16(normal(random)))); };
  for (auto& row : a)
    for (double& x : row) x = number();
  for (auto& row : b)
    for (double& x : row) x = number();
  for (auto& row : c)
    for (double& x : row) x = number();
  const auto bits = [](double x) { return static_cast<uint32_t>(f32_to_bf16(static_cast<float>(x))); };
  tiles::FragmentA left;
  tiles::FragmentB right;
  tiles::FragmentC sum;
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane >> 2, thread = lane % 4;
    for (int i = 0; i < 8; ++i) {  // a0 .. a7 of the manual
      const int row = i % 4 < 2 ? group : group + 8, col = thread * 2 + (i & 1) + (i >= 4 ? 8 : 0);
      uint32_t& pair = left.a[i / 2].v[lane];
      pair = i % 2 == 0 ? bits(a[row][col]) : pair | bits(a[row][col]) << 16;
    }
    for (int i = 0; i < 4; ++i) {
      const int row = thread * 2 + (i & 1) + (i >= 2 ? 8 : 0);
      uint32_t& pair = right.b[i / 2].v[lane];
      pair = i % 2 == 0 ? bits(b[row][group]) : pair | bits(b[row][group]) << 16;
      sum.c[i].v[lane] = static_cast<float>(c[i < 2 ? group : group + 8][thread * 2 + (i & 1)]);
    }
  }
  const Status status = run_block(1, [&](Warp& w, Block&, int) { tiles::mma_bf16(w, left, right, sum); });
  ASSERT_TRUE(status.ok());
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = i < 2 ? lane / 4 : lane / 4 + 8, col = lane % 4 * 2 + (i & 1);
      double want = c[row][col], size = std::abs(want);
      for (int k = 0; k < 16; ++k) {
        want += a[row][k] * b[k][col];
        size += std::abs(a[row][k] * b[k][col]);
      }
      EXPECT_NEAR(sum.c[i].v[lane], want, 17 * 0x1p-24 * size);
    }
}

// Every element has a place of its own, and the 8 rows x 4 words that a fragment reads at once lie in 32 banks.
TEST(TileShared, SwizzledTilesAreDenseAndWithoutConflicts) {
  using Tile = tiles::SharedTile<64, 512, 2>;
  const Tile tile{1024};
  std::set<uint32_t> places;
  for (int row = 0; row < 64; ++row)
    for (int col = 0; col < 512; col += 32) {
      const Lanes<uint32_t> at = tile.at(Lanes<int>(row), tiles::lane_index() + col);
      places.insert(at.v, at.v + 32);
    }
  EXPECT_EQ(places.size(), 64u * 512u);
  EXPECT_EQ(*places.begin(), 1024u);
  EXPECT_EQ(*places.rbegin(), 1024u + Tile::kBytes - 2);
  for (int k = 0; k < 512; k += 16) {
    const Lanes<int> lane = tiles::lane_index();
    const Lanes<uint32_t> at = tile.at(lane / 4, lane % 4 * 4 + k);
    // Lanes read 8 bytes: a half of the warp is one access.
    for (int half = 0; half < 2; ++half) {
      std::set<uint32_t> banks;
      for (int i = 16 * half; i < 16 * half + 16; ++i) banks.insert(at.v[i] / 8 % 16);
      EXPECT_EQ(banks.size(), 16u) << k;
    }
  }
}

}  // namespace
}  // namespace redline::emu
