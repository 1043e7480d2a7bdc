// Weights on their way to a device: through two buffers, from which copies arrive late.
#include <gmock/gmock.h>

#include <numeric>

#include "graph/ops/linear.h"
#include "support/random_weight.h"
#include "support/tile_harness.h"

namespace redline::test {
namespace {

std::shared_ptr<OpenDevice> small_device(int64_t staging_bytes) {
  return std::make_shared<OpenDevice>(emu::open_emulated_device({.staging_bytes = staging_bytes}));
}

TEST(StagedUpload, FillsMemoryInPiecesOfAnySize) {
  for (const int64_t buffer : {256, 1000, 4096, 1 << 20}) {
    const auto device = small_device(buffer);
    std::vector<uint8_t> want(20000);
    std::iota(want.begin(), want.end(), uint8_t{0});
    const auto memory = DeviceMemory::make(device, std::ssize(want));
    ASSERT_TRUE(memory.ok());
    StagedUpload staged(*device, std::ssize(want));
    int64_t pieces = 0;
    for (int64_t at = 0, most = 1; at < std::ssize(want); most = most * 3 % 2003 + 1, ++pieces) {
      const auto place = staged.place(1, std::min(most, std::ssize(want) - at));
      ASSERT_TRUE(place.ok());
      ASSERT_FALSE(place->empty());
      std::copy_n(want.begin() + at, place->size(), place->begin());
      ASSERT_TRUE(staged.upload(memory->data() + at, std::ssize(*place)).ok());
      at += std::ssize(*place);
    }
    EXPECT_GT(pieces, 10);
    ASSERT_TRUE(staged.finish().ok());
    std::vector<uint8_t> got(want.size());
    ASSERT_TRUE(device->download(got.data(), memory->data(), std::ssize(got)).ok());
    EXPECT_EQ(got, want) << "buffers of " << buffer;
  }
}

// The emulated device copies as late as it may, so that the host cannot rely on earlier copies.
TEST(StagedUpload, CopiesArriveWhenTheBufferIsGivenOutAgain) {
  const auto device = small_device(512);
  const auto memory = DeviceMemory::make(device, 1024);
  ASSERT_TRUE(memory.ok());
  StagedUpload staged(*device, 1024);
  const auto fill = [&](uint8_t value, int64_t to) {
    const auto place = staged.place(512, 512);
    ASSERT_EQ(std::ssize(*place), 512);
    EXPECT_EQ((*place)[0], 0xff) << "contents of a buffer are undefined";
    std::fill(place->begin(), place->end(), value);
    ASSERT_TRUE(staged.upload(memory->data() + to, 512).ok());
  };
  const auto byte_at = [&](int64_t at) {
    uint8_t byte = 0;
    EXPECT_TRUE(device->download(&byte, memory->data() + at, 1).ok());
    return byte;
  };
  fill(1, 0);
  fill(2, 512);
  EXPECT_EQ(byte_at(0), 0);
  fill(3, 0);
  EXPECT_EQ(byte_at(0), 1);
  EXPECT_EQ(byte_at(512), 0);
  ASSERT_TRUE(staged.finish().ok());
  EXPECT_EQ(byte_at(0), 3);
  EXPECT_EQ(byte_at(512), 2);
  // A piece that no buffer holds.
  const auto none = staged.place(513, 600);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
  uint8_t elsewhere = 0;
  EXPECT_FALSE(device->upload_staged(memory->data(), &elsewhere, 1).ok());
}

// Buffers that hold a few panels, one, or none.
TEST(StagedUpload, WeightsAreTheSameWhateverTheBuffers) {
  constexpr int64_t kIn = 256, kOut = 200, kRows = 3;
  for (const DType type : {DType::kF32, DType::kBF16, DType::kQ4_0, DType::kQ4_K, DType::kQ8_0}) {
    const testing::RandomWeight weight(type, kOut, kIn, 3);
    GraphBuilder g("staged");
    WeightSource source;
    source.view = weight.view();
    source.source_row = [](int64_t n) { return (n * 7 + 3) % kOut; };
    g.output("y", linear(g, g.input("x", DType::kF32, {Symbol::kTokens, Dim(kIn)}), g.weight("w", source)));
    const Graph graph = std::move(g.finish()).value();
    SymbolValues sizes;
    sizes[Symbol::kTokens] = kRows;
    Numbers numbers(3);
    const HostTensor x = matrix(numbers, kRows, kIn);
    std::vector<float> want;
    for (const int64_t buffer : {int64_t{1} << 20, int64_t{40000}, int64_t{20000}, int64_t{64}}) {
      TileCompiled c = TileCompiled::make(graph, sizes, {.exact_f32 = false, .staging_bytes = buffer});
      ASSERT_TRUE(c.status.ok()) << c.status.to_string();
      put(*c.runner, graph, "x", x);
      StepContext step;
      step.sizes = sizes;
      ASSERT_TRUE(c.runner->step(step).ok());
      const std::vector<float> got = get(*c.runner, "y", kRows * kOut);
      if (want.empty()) want = got;
      EXPECT_EQ(got, want) << dtype_info(type).name << ", buffers of " << buffer;
    }
    EXPECT_GT(*std::max_element(want.begin(), want.end()), 0);
  }
}

}  // namespace
}  // namespace redline::test
