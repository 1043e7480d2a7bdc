// Every block format against values that ggml's reference code computed (tests/golden/blocks.npz of
// make_block_vectors.py, and files of llama.cpp in ../shared/models/quant-vectors), and its two forms, codes with
// scales and values, against each other.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "formats/gguf.h"
#include "support/npz.h"
#include "support/random_weight.h"

namespace redline {
namespace {

using testing::NpyArray;
using testing::RandomWeight;

struct Vectors {
  const char* file;  ///< tiny-FILE.gguf with tiny-FILE.npz
  DType dtype;
};
constexpr Vectors kVectors[] = {
    {"Q4_0", DType::kQ4_0},   {"Q4_1", DType::kQ4_1},   {"Q5_0", DType::kQ5_0},     {"Q5_1", DType::kQ5_1},
    {"Q8_0", DType::kQ8_0},   {"Q2_K", DType::kQ2_K},   {"Q3_K_M", DType::kQ3_K},   {"Q4_K_M", DType::kQ4_K},
    {"Q5_K_M", DType::kQ5_K}, {"Q6_K", DType::kQ6_K},   {"IQ4_NL", DType::kIQ4_NL}, {"IQ4_XS", DType::kIQ4_XS},
    {"IQ3_S", DType::kIQ3_S}, {"TQ1_0", DType::kTQ1_0}, {"TQ2_0", DType::kTQ2_0},   {"MXFP4_MOE", DType::kMXFP4},
};

void expect_bits(DType dtype, const void* blocks, const NpyArray& expected) {
  std::vector<float> values(expected.values.size());
  unpack_row(dtype, blocks, values.data(), static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(__builtin_bit_cast(uint32_t, values[i]),
              __builtin_bit_cast(uint32_t, static_cast<float>(expected.values[i])))
        << "element " << i << ": " << values[i] << " expected " << expected.values[i];
}

TEST(Blocks, RandomBlocksHaveTheValuesOfTheReferenceToTheBit) {
  auto arrays = testing::read_npz(REDLINE_SOURCE_DIR "/tests/golden/blocks.npz");
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  for (const Vectors& v : kVectors) {
    std::string name(dtype_info(v.dtype).name);
    for (char& c : name) c = static_cast<char>(std::toupper(c));
    SCOPED_TRACE(name);
    ASSERT_TRUE(arrays->count(name + ".bytes"));
    const NpyArray& bytes = arrays->at(name + ".bytes");
    const std::vector<uint8_t> blocks(bytes.values.begin(), bytes.values.end());
    const NpyArray& expected = arrays->at(name + ".values");
    ASSERT_EQ(static_cast<int64_t>(blocks.size()), row_bytes(v.dtype, static_cast<int64_t>(expected.values.size())));
    expect_bits(v.dtype, blocks.data(), expected);
  }
}

TEST(Blocks, ValuesOfTheReferenceFilesToTheBit) {
  const std::string folder = std::string(REDLINE_SHARED_DIR) + "/models/quant-vectors/tiny-";
  if (!std::filesystem::exists(folder + "Q4_0.gguf")) GTEST_SKIP() << folder << "*.gguf is not here";
  for (const Vectors& v : kVectors) {
    SCOPED_TRACE(v.file);
    auto file = GgufFile::open(folder + v.file + ".gguf");
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    auto arrays = testing::read_npz(folder + v.file + ".npz");
    ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
    ASSERT_FALSE(arrays->empty());
    for (const auto& [name, expected] : *arrays) {
      SCOPED_TRACE(name);
      const GgufTensor* tensor = file->tensor(name);
      ASSERT_NE(tensor, nullptr);
      ASSERT_EQ(dtype_info(tensor->view.dtype).name, dtype_info(v.dtype).name);
      ASSERT_EQ(tensor->view.shape, expected.shape);
      expect_bits(v.dtype, tensor->view.data, expected);
    }
  }
}

// Rows of plain floats are single values (tests/tensor/dtype_test.cc) one after the other, for any length.
TEST(Blocks, RowsOfPlainFloatsAreTheirValues) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const size_t count : {0, 1, 7, 8, 15, 16, 17, 31, 33, 257}) {
    std::vector<float> exact(count);
    for (size_t i = 0; i < count; ++i) exact[i] = std::ldexp(normal(random), static_cast<int>(i * 7 % 41) - 30);
    for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      std::vector<uint8_t> row(static_cast<size_t>(row_bytes(type, std::ssize(exact))) + 1);
      std::vector<float> values(count);
      round_row(type, exact.data(), std::ssize(exact), row.data());
      unpack_row(type, row.data(), values.data(), std::ssize(exact));
      for (size_t i = 0; i < count; ++i) {
        float expected = exact[i];
        if (type == DType::kF16) expected = f16_to_f32(f32_to_f16(expected));
        if (type == DType::kBF16) expected = bf16_to_f32(f32_to_bf16(expected));
        ASSERT_EQ(values[i], expected) << dtype_info(type).name << " element " << i << " of " << count;
      }
      ASSERT_EQ(row.back(), 0) << "written past the row";
    }
  }
}

template <class Format>
void check_codes(const RandomWeight& w) {
  constexpr int kGroups = Format::kElements / Format::kGroup;
  static_assert(Format::kGroup == 16 || Format::kGroup == 32);
  for (int64_t block = 0; block * Format::kBytes < static_cast<int64_t>(w.bytes.size()); ++block) {
    int8_t codes[Format::kElements];
    float scales[kGroups] = {}, mins[kGroups] = {};
    Format::unpack_i8(w.bytes.data() + block * Format::kBytes, codes, scales, mins);
    for (int i = 0; i < Format::kElements; ++i) {
      const int g = i / Format::kGroup;
      ASSERT_LE(std::abs(int{codes[i]}), Format::kMaxCode);
      ASSERT_EQ(scales[g] * static_cast<float>(codes[i]) - mins[g],
                w.values[static_cast<size_t>(block * Format::kElements + i)]);
      if (!Format::kHasMins) {
        ASSERT_EQ(mins[g], 0.0f);
      }
    }
  }
}

TEST(Blocks, CodesTimesScalesMinusMinsAreTheValues){
#define REDLINE_CHECK_FORMAT(F)                                     \
  {                                                                 \
    SCOPED_TRACE(#F);                                               \
    check_codes<blocks::F>(RandomWeight(DType::k##F, 8, 1024, 11)); \
  }
    REDLINE_BLOCK_FORMATS(REDLINE_CHECK_FORMAT)
#undef REDLINE_CHECK_FORMAT
}

TEST(Blocks, HalvesOfEveryKind) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const double sign = half & 0x8000 ? -1 : 1;
    const float got = f16_to_f32(half);
    if (exponent == 31) {
      if (fraction) {
        ASSERT_TRUE(std::isnan(got));
      } else {
        ASSERT_EQ(got, sign > 0 ? INFINITY : -INFINITY);
      }
      continue;
    }
    const double expected =
        exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024 + fraction, exponent - 25);
    ASSERT_EQ(double{got}, expected) << bits;
    ASSERT_EQ(std::signbit(got), (half & 0x8000) != 0);
    ASSERT_EQ(f32_to_f16(got), half);
  }
}

// Scales at the ends of what a block can hold: subnormal halves, and MXFP4's exponents 0, 1 and 254, 255.
TEST(Blocks, ExtremeScales) {
  uint8_t q8[34] = {1, 0};  // d = 2^-24
  q8[2] = 0x80;             // -128
  float y[32];
  unpack_row(DType::kQ8_0, q8, y, 32);
  EXPECT_EQ(y[0], -128 * 0x1p-24f);
  for (int e : {0, 1, 2, 127, 254, 255}) {
    uint8_t mxfp4[17] = {static_cast<uint8_t>(e), 0xf1};  // codes 1 and -12
    unpack_row(DType::kMXFP4, mxfp4, y, 32);
    EXPECT_EQ(double{y[0]}, std::ldexp(1.0, e - 128));
    const double low = std::ldexp(-12.0, e - 128);
    EXPECT_EQ(y[16], low < -3.5e38 ? -INFINITY : static_cast<float>(low));
  }
}

}  // namespace
}  // namespace redline
