#include "diffusion/torch_generator.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/npz.h"

namespace redline {
namespace {

uint64_t seed_of(const std::string& text) {
  return text[0] == '-' ? static_cast<uint64_t>(std::stoll(text)) : std::stoull(text);
}

// Bit for bit from 16 values on: the same float32 operations in the same order. Below 16 the C library's float64 log1p,
// sine and cosine are rounded to float32: half a unit in the last place of float64, seen in float32 once in 2^28 draws.
TEST(TorchGenerator, DrawsWhatTorchDraws) {
  const auto arrays = testing::read_npz(REDLINE_SOURCE_DIR "/tests/golden/image/torch_generator/io.npz");
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  int fresh = 0, turns = 0;
  for (const auto& [name, array] : *arrays) {
    SCOPED_TRACE(name);
    const size_t first = name.find('_'), second = name.find('_', first + 1);
    TorchGenerator generator(seed_of(name.substr(first + 1, second - first - 1)));
    std::vector<float> drawn(array.values.size());
    if (name.starts_with("fresh_")) {
      ++fresh;
      generator.draw(drawn);
    } else {
      ++turns;
      size_t at = 0;
      for (size_t size : {1, 16, 2, 15, 17, 1, 3, 64, 1}) {
        generator.draw(std::span(drawn).subspan(at, size));
        at += size;
      }
      ASSERT_EQ(at, drawn.size());
    }
    for (size_t i = 0; i < drawn.size(); ++i) ASSERT_EQ(drawn[i], array.values[i]) << "at " << i;
  }
  EXPECT_EQ(fresh, 30);
  EXPECT_EQ(turns, 6);
}

TEST(TorchGenerator, MeanAndVarianceOfManyDraws) {
  TorchGenerator generator(3);
  std::vector<float> drawn(1 << 16);
  generator.draw(drawn);
  double sum = 0, squares = 0;
  for (float x : drawn) sum += x, squares += double{x} * x;
  const auto n = static_cast<double>(drawn.size());
  EXPECT_LT(std::abs(sum / n), 5 / std::sqrt(n));  // five standard errors
  EXPECT_LT(std::abs(squares / n - 1), 5 * std::sqrt(2 / n));
  generator.draw(std::span<float>());  // nothing
}

}  // namespace
}  // namespace redline
