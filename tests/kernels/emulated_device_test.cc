// The emulated device: what a device promises, and the rules that a kernel must keep.
#include "kernels/emu/emulated_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "kernels/emu/matrix_operand.h"
#include "kernels/tiles/angles.h"
#include "kernels/tiles/fragment.h"
#include "kernels/tiles/shared_tile.h"
#include "kernels/tiles/warp_group.h"
#include "tensor/dtype.h"

namespace redline::emu {
namespace {

using tiles::Lanes;
using tiles::Warp;

/// One block of `warps` warps with 1 KiB of shared memory and two mbarriers: of 1 arrival, and of `warps`.
Status run_block(int warps, const std::function<void(Warp&, Block&, int)>& body, const MemoryMap& memory = {},
                 const MachineOptions& options = {}) {
  Machine machine(memory);
  static thread_local int count;
  count = warps;
  const auto prepare = [](Block& block) {
    Warp warp(block, 0);
    warp.barrier_init(0, 1);
    warp.barrier_init(1, count);
  };
  return machine.run({.blocks = 1, .warps = warps, .shared_bytes = 1024, .barriers = 2, .prepare = prepare}, options,
                     [&](Block& block, int w) {
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
    const Status status = run_block(1,
                                    [&](Warp& w, Block& block, int) {
                                      block.shared[5] = 99;
                                      w.barrier_expect(0, 64);
                                      w.bulk_copy(0, source, 64, 0);
                                      before = block.shared[5];
                                      w.barrier_wait(0, 0);
                                      after = block.shared[5];
                                    },
                                    memory, {.seed = seed});
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(before, 0xff);
    EXPECT_EQ(after, 5);
  }
}

// cp.async of older devices: the arrivals of the lanes follow what they have copied, in any order of the pieces.
TEST(EmulatedDevice, ArrivalsOfLanesFollowTheirCopies) {
  alignas(16) uint8_t source[1024];
  for (int i = 0; i < 1024; ++i) source[i] = static_cast<uint8_t>(i % 251);
  MemoryMap memory;
  memory.add(source, sizeof(source), true);
  const auto run = [&](const MachineOptions& options) {
    uint8_t before = 0, after = 0, last = 0;
    const Status status = run_block(
        1,
        [&](Warp& w, Block& block, int) {
          w.barrier_init(0, tiles::kWarpLanes);
          block.shared[5] = 99;
          w.async_copy(0, source, 1024);
          w.async_arrive(0);
          before = block.shared[5];
          w.barrier_wait(0, 0);
          after = block.shared[5];
          last = block.shared[1023];
        },
        memory, options);
    EXPECT_EQ(before, 0xff);
    return status.ok() && after == 5 && last == 1023 % 251;
  };
  int found = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    EXPECT_TRUE(run({.seed = seed, .has_bulk_copies = false}));
    found += !run({.seed = seed, .fault = Fault::kEarlyArrival, .has_bulk_copies = false});
  }
  EXPECT_GT(found, 0);
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
  EXPECT_THAT(run_block(1,
                        [](Warp& w, Block&, int) {
                          w.barrier_expect(0, 64);
                          w.bulk_copy(0, constant, 64, 0);
                        },
                        memory, {.has_bulk_copies = false})
                  .message(),
              HasSubstr("a device that has none"));
}

// 227 KiB on 9.0, 163 KiB on 8.0, 99 KiB on 8.6, 8.9 and 12.0, and too little.
TEST(EmulatedDevice, TheRingHasTheStagesThatFit) {
  EXPECT_EQ(tiles::ring_stages_of(227 << 10), 4);
  EXPECT_EQ(tiles::ring_stages_of(163 << 10), 3);
  EXPECT_EQ(tiles::ring_stages_of(99 << 10), 1);
  EXPECT_EQ(tiles::ring_stages_of(64 << 10), 0);
  for (int stages = 1; stages <= tiles::kMaxRingStages; ++stages)
    EXPECT_EQ(tiles::ring_stages_of(tiles::shared_bytes_of(stages)), stages);
}

// Where the canonical layouts of wgmma's operands have an element (PTX ISA 9.7.15.5.1), against what the emulated
// device reads through an encoded descriptor.
TEST(WarpGroups, DescriptorsNameTheElementsOfTheirLayout) {
  using tiles::MatrixSwizzle;
  struct Layout {
    MatrixSwizzle swizzle;
    uint32_t row_bytes;
  };
  for (const auto& [swizzle, row_bytes] : {Layout{MatrixSwizzle::k128, 128}, Layout{MatrixSwizzle::k64, 64},
                                           Layout{MatrixSwizzle::k32, 32}, Layout{MatrixSwizzle::k16, 16}}) {
    const uint32_t units = row_bytes / 16, atom = 8 * row_bytes, k_stride = 8 * atom + 128;
    for (uint32_t first_unit = 0; first_unit + 2 <= std::max(units, 2u); first_unit += 2) {
      std::vector<uint8_t> shared(32768, 0xff);
      for (uint32_t row = 0; row < 64; ++row)
        for (uint32_t k = 0; k < 16; ++k) {
          const uint32_t unit = first_unit + k / 8, turn = row % 8 * row_bytes / 128 % units;
          const uint32_t at = units == 1 ? 2048 + k / 8 * k_stride + row / 8 * atom + row % 8 * 16
                                         : 2048 + row / 8 * atom + row % 8 * row_bytes + (unit ^ turn) * 16;
          const float value = static_cast<float>(row * 2 + k / 8);  // exact in bfloat16
          const auto bits = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, value) >> 16);
          std::memcpy(&shared[at + k % 8 * 2], &bits, 2);
        }
      const tiles::MatrixDescriptor d{2048 + first_unit * 16, k_stride, atom, swizzle};
      float elements[16][64];
      ASSERT_TRUE(read_operand(shared, d.encode(), elements));
      for (uint32_t row = 0; row < 64; ++row)
        for (uint32_t k = 0; k < 16; ++k)
          ASSERT_EQ(elements[k][row], static_cast<float>(row * 2 + k / 8)) << row_bytes << ": " << row << " " << k;
      EXPECT_FALSE(read_operand(shared, d.encode() | uint64_t{1} << 50, elements)) << "an offset of atoms";
      shared.resize(2048 + atom);
      EXPECT_FALSE(read_operand(shared, d.encode(), elements));
    }
  }
}

// A group of four warps multiplies: the sums are those of float64, come late, and need all four warps.
TEST(WarpGroups, MultiplyTogether) {
  constexpr int kSharedBytes = 8192;
  const tiles::MatrixDescriptor good{0, 0, 1024, tiles::MatrixSwizzle::k128};
  const auto run = [&](const std::function<void(Warp&, Block&, int, uint64_t)>& body, uint64_t seed = 0) {
    const MemoryMap memory;
    Machine machine(memory);
    return machine.run({.blocks = 1, .warps = 4, .shared_bytes = kSharedBytes}, {.seed = seed},
                       [&](Block& block, int w) {
                         Warp warp(block, w);
                         body(warp, block, w, good.encode());
                       });
  };
  const auto number = [](int row, int k) { return static_cast<float>((row * 5 + k * 3) % 17 - 8); };
  const auto fill = [&](Block& block) {
    for (int row = 0; row < 64; ++row)
      for (int k = 0; k < 16; ++k) {
        const auto bits = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, number(row, k)) >> 16);
        std::memcpy(&block.shared[static_cast<size_t>(row * 128 + ((k / 8) ^ (row % 8)) * 16 + k % 8 * 2)], &bits, 2);
      }
  };
  const auto left = [&](int warp) {
    tiles::FragmentA a;
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        const int row = 16 * warp + lane / 4 + 8 * (i % 2), k = lane % 4 * 2 + 8 * (i / 2);
        a.a[i].v[lane] = __builtin_bit_cast(uint32_t, number(row + 3, k)) >> 16 |
                         (__builtin_bit_cast(uint32_t, number(row + 3, k + 1)) & 0xffff0000u);
      }
    return a;
  };
  for (uint64_t seed = 0; seed < 4; ++seed) {
    double worst = 0;
    bool is_late = true;
    const Status status = run(
        [&](Warp& w, Block& block, int warp, uint64_t descriptor) {
          fill(block);
          tiles::GroupC c;
          for (auto& tile : c.tiles) tile = tiles::zero_c();
          tiles::FragmentA a[2] = {left(warp), left(warp)};
          const uint64_t descriptors[2] = {descriptor, descriptor};
          Lanes<float>* registers[32];
          for (int i = 0; i < 32; ++i) registers[i] = &c.tiles[i / 4].c[i % 4];
          w.group_multiply(a[0].a, descriptor, registers, false);
          is_late &= std::isnan(c.tiles[0].c[0].v[0]);
          w.group_wait();
          tiles::group_multiply<false>(w, a, descriptors, c);
          for (int i = 0; i < 32; ++i)
            for (int lane = 0; lane < 32; ++lane) {
              const int row = 16 * warp + lane / 4 + 8 * (i % 4 / 2), col = i / 4 * 8 + lane % 4 * 2 + i % 2;
              double want = 0;
              for (int k = 0; k < 16; ++k) want += 2.0 * number(row + 3, k) * number(col, k);
              worst = std::max(worst, std::abs(want - c.tiles[i / 4].c[i % 4].v[lane]));
            }
        },
        seed);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(worst, 0) << "integers are exact";
    EXPECT_TRUE(is_late);
  }
  using ::testing::HasSubstr;
  const auto multiply = [&](Warp& w, int warp, uint64_t descriptor) {
    tiles::GroupC c;
    tiles::FragmentA a[1] = {left(warp)};
    const uint64_t descriptors[1] = {descriptor};
    tiles::group_multiply<false>(w, a, descriptors, c);
  };
  EXPECT_THAT(run([&](Warp& w, Block&, int warp, uint64_t d) {
                if (warp != 2) multiply(w, warp, d);
              }).message(),
              HasSubstr("product 1 of all four warps of its group"));
  EXPECT_THAT(run([&](Warp& w, Block&, int warp, uint64_t d) { multiply(w, warp, warp == 2 ? d + 2 : d); }).message(),
              HasSubstr("different descriptors"));
  EXPECT_THAT(run([&](Warp& w, Block&, int warp, uint64_t d) { multiply(w, warp, d + 512); }).message(),
              HasSubstr("is not that of a matrix"));
  const auto store = [&](Warp& w, int warp, uint64_t d, bool publishes) {
    w.store_shared(tiles::convert<uint32_t>(tiles::lane_index() * 4), Lanes<uint32_t>(0u));
    if (publishes) w.publish_shared();
    multiply(w, warp, d);
  };
  EXPECT_THAT(run([&](Warp& w, Block&, int warp, uint64_t d) { store(w, warp, d, warp != 1); }).message(),
              HasSubstr("no fence has published"));
  EXPECT_TRUE(run([&](Warp& w, Block&, int warp, uint64_t d) { store(w, warp, d, true); }).ok());
}

// A group of four warps multiplies int8, whose rows of 128 elements hold the operands of four products; and one warp
// multiplies alone.
TEST(WarpGroups, MultiplyCodes) {
  constexpr int kSharedBytes = 8192;
  const auto code = [](int row, int k) { return static_cast<int8_t>((row * 37 + k * 11) % 256 - 128); };
  const auto left = [&](int warp, int begin) {
    tiles::FragmentA a;
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        a.a[i].v[lane] = 0;
        for (int byte = 0; byte < 4; ++byte) {
          const int row = 16 * warp + lane / 4 + 8 * (i % 2), k = begin + lane % 4 * 4 + 16 * (i / 2) + byte;
          a.a[i].v[lane] |= static_cast<uint32_t>(static_cast<uint8_t>(code(row + 3, k))) << (8 * byte);
        }
      }
    return a;
  };
  const auto want = [&](int row, int col, int begin, int end) {
    int32_t sum = 0;
    for (int k = begin; k < end; ++k) sum += int32_t{code(row + 3, k)} * code(col, k);
    return sum;
  };
  for (uint64_t seed = 0; seed < 4; ++seed) {
    int wrong = 0;
    const MemoryMap memory;
    Machine machine(memory);
    const Status status = machine.run(
        {.blocks = 1, .warps = 4, .shared_bytes = kSharedBytes}, {.seed = seed}, [&](Block& block, int warp) {
          Warp w(block, warp);
          for (int row = 0; row < 64; ++row)
            for (int k = 0; k < 128; ++k)
              block.shared[static_cast<size_t>(row * 128 + ((k / 16) ^ (row % 8)) * 16 + k % 16)] =
                  static_cast<uint8_t>(code(row, k));
          tiles::GroupSums c;
          tiles::FragmentA a[3] = {left(warp, 32), left(warp, 64), left(warp, 96)};
          uint64_t descriptors[3];
          for (uint32_t i = 0; i < 3; ++i)
            descriptors[i] = tiles::MatrixDescriptor{32 * (i + 1), 0, 1024, tiles::MatrixSwizzle::k128}.encode();
          for (auto& tile : c.tiles) tile = {{5, 5, 5, 5}};
          Lanes<int32_t>* registers[32];
          for (int i = 0; i < 32; ++i) registers[i] = &c.tiles[i / 4].c[i % 4];
          w.group_multiply(a[0].a, descriptors[0], registers, true);
          wrong += c.tiles[0].c[0].v[0] == 5 ? 1 : 0;  // late
          w.group_wait();
          const auto count = [&](int begin, int end, int32_t more) {
            for (int i = 0; i < 32; ++i)
              for (int lane = 0; lane < 32; ++lane) {
                const int row = 16 * warp + lane / 4 + 8 * (i % 4 / 2), col = i / 4 * 8 + lane % 4 * 2 + i % 2;
                wrong += c.tiles[i / 4].c[i % 4].v[lane] != want(row, col, begin, end) + more ? 1 : 0;
              }
          };
          count(32, 64, 5);
          tiles::group_multiply<false>(w, a, descriptors, c);
          count(32, 128, 0);
          // The eight columns of tile 1 by this warp alone.
          tiles::FragmentB b;
          for (int lane = 0; lane < 32; ++lane)
            for (int i = 0; i < 2; ++i) {
              b.b[i].v[lane] = 0;
              for (int byte = 0; byte < 4; ++byte)
                b.b[i].v[lane] |=
                    static_cast<uint32_t>(static_cast<uint8_t>(code(8 + lane / 4, 32 + lane % 4 * 4 + 16 * i + byte)))
                    << (8 * byte);
            }
          tiles::FragmentSums one = tiles::zero_sums();
          tiles::mma_i8(w, a[0], b, one);
          for (int i = 0; i < 4; ++i)
            for (int lane = 0; lane < 32; ++lane)
              wrong += one.c[i].v[lane] != want(16 * warp + lane / 4 + 8 * (i / 2), 8 + lane % 4 * 2 + i % 2, 32, 64);
        });
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(wrong, 0);
  }
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
