#include "tensor/dtype.h"

#include "tensor/blocks/w8a8.h"
#include "tensor/tensor_view.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

namespace redline {
namespace {

TEST(DType, TableIsWhole) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const DTypeInfo& t = dtype_info(dtype);
    EXPECT_EQ(t.dtype, dtype);
    EXPECT_EQ(*dtype_from_name(t.name), dtype);
    const bool in_gguf = t.gguf_type >= 0;
    EXPECT_EQ(dtype_from_gguf(static_cast<uint32_t>(t.gguf_type)), in_gguf ? &t : nullptr);
    EXPECT_EQ(t.is_block, t.block_elements > 1);
    EXPECT_EQ(row_bytes(dtype, 3 * t.block_elements), 3 * t.block_bytes + t.row_bytes);
    std::string upper(t.name);
    for (char& c : upper) c = static_cast<char>(std::toupper(c));
    EXPECT_EQ(gguf_type_name(static_cast<uint32_t>(t.gguf_type)), in_gguf ? upper : "");
  }
}

// A row of w8a8 ends with its scale; of a matrix every row.
TEST(DType, W8A8RowsEndWithAScale) {
  constexpr int kCount = blocks::W8A8::kElements;
  std::vector<uint8_t> row(kCount + blocks::W8A8::kRowBytes);
  for (int i = 0; i < kCount; ++i) row[static_cast<size_t>(i)] = static_cast<uint8_t>(i - 16);
  const float scale = -0.37f;
  std::memcpy(&row[kCount], &scale, sizeof(scale));
  float values[kCount];
  unpack_row(DType::kW8A8, row.data(), values, kCount);
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(values[i], scale * static_cast<float>(i - 16));
  EXPECT_EQ((TensorView{DType::kW8A8, {5, 64}, nullptr}.bytes()), 5 * 68);
  EXPECT_EQ((TensorView{DType::kW8A8, {0, 64}, nullptr}.bytes()), 0);
}

TEST(DType, UnknownNamesAndNumbers) {
  const Result<DType> typo = dtype_from_name("q4k");
  ASSERT_FALSE(typo.ok());
  EXPECT_EQ(typo.status().code(), Code::not_found);
  EXPECT_NE(typo.status().message().find("did you mean \"q4_k\"?"), std::string::npos) << typo.status().message();
  EXPECT_FALSE(dtype_from_name("").ok());
  EXPECT_FALSE(dtype_from_name(std::string(100000, 'q')).ok());
  EXPECT_EQ(dtype_from_gguf(19), nullptr);
  EXPECT_EQ(gguf_type_name(19), "IQ1_S");
  EXPECT_EQ(dtype_from_gguf(4000000000u), nullptr);
  EXPECT_EQ(gguf_type_name(4000000000u), "");
}

// The nearest half by search among its neighbours, ties to the even one.
uint16_t nearest_half(float value) {
  uint16_t best = 0;
  double best_distance = INFINITY;
  for (uint32_t h = 0; h <= 0x7c00; ++h) {
    // Infinity stands where the next half after 65504 would be.
    const double half = h == 0x7c00 ? 65536.0 : double{f16_to_f32(static_cast<uint16_t>(h))};
    const double distance = std::abs(half - std::abs(double{value}));
    if (distance < best_distance || (distance == best_distance && h % 2 == 0)) {
      best = static_cast<uint16_t>(h);
      best_distance = distance;
    }
  }
  return static_cast<uint16_t>(best | (std::signbit(value) ? 0x8000 : 0));
}

TEST(DType, F32ToF16RoundsToNearestEven) {
  std::mt19937 random(5);
  std::vector<float> values = {0.0f,     -0.0f,      1e-30f,       0x1p-25f,     0x1.000002p-25f,
                               0x1p-24f, 0x1.8p-24f, 0x1.ffep-15f, 0x1.fffp-15f, 65504.0f,
                               65519.9f, 65520.0f,   65536.0f,     1e30f,        INFINITY};
  for (int i = 0; i < 200; ++i) {
    const float value = std::ldexp(static_cast<float>(random() % 2000001) - 1e6f, static_cast<int>(random() % 40) - 40);
    values.push_back(value);
    // Halfway between two halves.
    const auto h = static_cast<uint16_t>(random() % 0x7bff);
    values.push_back((f16_to_f32(h) + f16_to_f32(static_cast<uint16_t>(h + 1))) / 2);
  }
  for (float value : values) {
    EXPECT_EQ(f32_to_f16(value), std::isinf(value) ? 0x7c00 : nearest_half(value)) << value;
    EXPECT_EQ(f32_to_f16(-value), f32_to_f16(value) ^ 0x8000) << value;
  }
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(NAN))));
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(__builtin_bit_cast(float, 0x7f800001u)))));
}

TEST(DType, F32ToBf16RoundsToNearestEven) {
  std::mt19937 random(6);
  for (int i = 0; i < 100000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    const auto value = __builtin_bit_cast(float, bits);
    const uint16_t got = f32_to_bf16(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(bf16_to_f32(got)));
      continue;
    }
    const uint32_t below = bits >> 16, rest = bits & 0xffff;
    const uint32_t expected = rest > 0x8000 || (rest == 0x8000 && below % 2 == 1) ? below + 1 : below;
    ASSERT_EQ(got, expected) << value;
  }
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(__builtin_bit_cast(float, 0x7f800001u)))));
  EXPECT_EQ(f32_to_bf16(3.4e38f), 0x7f80);
}

TEST(DType, UnpackRowOfPlainTypes) {
  float y[2];
  const int64_t i64[2] = {-3, int64_t{1} << 40};
  unpack_row(DType::kI64, i64, y, 2);
  EXPECT_EQ(y[0], -3.0f);
  EXPECT_EQ(y[1], 0x1p40f);
  const double f64[2] = {0.1, -1e300};
  unpack_row(DType::kF64, f64, y, 2);
  EXPECT_EQ(y[0], 0.1f);
  EXPECT_EQ(y[1], -INFINITY);
  const int8_t i8[2] = {-128, 127};
  unpack_row(DType::kI8, i8, y, 2);
  EXPECT_EQ(y[0], -128.0f);
  const uint8_t odd[5] = {0, 0x80, 0x3f, 0x00, 0xc0};  // bf16 1 and -2, misaligned
  unpack_row(DType::kBF16, odd + 1, y, 2);
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], -2.0f);
}

}  // namespace
}  // namespace redline
