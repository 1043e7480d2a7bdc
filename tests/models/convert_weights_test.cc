#include "models/checkpoint/convert_weights.h"

#include <gmock/gmock.h>

#include <cmath>

namespace redline {
namespace {

Checkpoint checkpoint_of(const std::vector<float>& values, int64_t rows, int64_t cols) {
  Checkpoint checkpoint;
  WeightSource source;
  source.file =
      MappedFile::from_bytes("weights", {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  source.view = {DType::kF32, {rows, cols}, source.file->data()};
  checkpoint.tensors.emplace("blocks.0.weight", source);
  return checkpoint;
}

std::vector<float> unpacked(const Checkpoint& checkpoint) {
  const TensorView& view = checkpoint.tensors.at("blocks.0.weight").view;
  std::vector<float> out(static_cast<size_t>(view.num_elements()));
  const int64_t cols = view.shape.back(), rows = view.num_elements() / cols;
  for (int64_t r = 0; r < rows; ++r)
    unpack_row(view.dtype, static_cast<const uint8_t*>(view.data) + r * row_bytes(view.dtype, cols),
               out.data() + r * cols, cols);
  return out;
}

const auto kAll = [](const std::string&) { return true; };

std::vector<float> waves(size_t n) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = std::sin(static_cast<float>(i) * 0.7f) * static_cast<float>(1 + i % 5);
  return v;
}

TEST(ConvertWeights, EachTypeIsWithinHalfAUnit) {
  const std::vector<float> values = waves(3 * 64);
  Checkpoint bf16 = checkpoint_of(values, 3, 64), q8 = checkpoint_of(values, 3, 64);
  ASSERT_TRUE(convert_weights(bf16, DType::kBF16, kAll).ok());
  ASSERT_TRUE(convert_weights(q8, DType::kQ8_0, kAll).ok());
  EXPECT_EQ(q8.tensors.at("blocks.0.weight").view.dtype, DType::kQ8_0);
  const std::vector<float> rounded = unpacked(bf16), coded = unpacked(q8);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(std::abs(rounded[i] - values[i]), std::abs(values[i]) * 0x1p-8f) << i;  // half a unit of 8 bits
    float most = 0;
    for (size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) most = std::max(most, std::abs(values[j]));
    // Half a code, and the scale's own rounding at the ends of the range.
    EXPECT_LE(std::abs(coded[i] - values[i]), most / 127 * 0.5f + most * 0x1p-11f) << i;
  }
}

TEST(ConvertWeights, W8A8HasAScaleForEachRow) {
  std::vector<float> values = waves(5 * 96);
  for (size_t i = 96; i < 192; ++i) values[i] *= 1e-3f;       // rows do not share a scale
  for (size_t i = 192; i < 288; ++i) values[i] = 0.0f;        // zeros
  for (size_t i = 288; i < 384; ++i) values[i] *= 0x1p-140f;  // their scale has no reciprocal
  values[4 * 96 + 7] = INFINITY;
  Checkpoint checkpoint = checkpoint_of(values, 5, 96);
  ASSERT_TRUE(convert_weights(checkpoint, DType::kW8A8, kAll).ok());
  EXPECT_EQ(checkpoint.tensors.at("blocks.0.weight").view.dtype, DType::kW8A8);
  const std::vector<float> coded = unpacked(checkpoint);
  for (size_t r = 0; r < 2; ++r) {
    float most = 0;
    for (size_t i = r * 96; i < r * 96 + 96; ++i) most = std::max(most, std::abs(values[i]));
    for (size_t i = r * 96; i < r * 96 + 96; ++i)
      EXPECT_LE(std::abs(coded[i] - values[i]), most / 127 * 0.5f + most * 0x1p-22f) << i;
  }
  for (size_t i = 192; i < 384; ++i) EXPECT_EQ(coded[i], 0.0f) << i;
  for (size_t i = 384; i < 480; ++i) EXPECT_TRUE(std::isnan(coded[i])) << i;
  Checkpoint odd = checkpoint_of(waves(3 * 40), 3, 40);
  ASSERT_TRUE(convert_weights(odd, DType::kW8A8, kAll).ok());
  EXPECT_EQ(odd.tensors.at("blocks.0.weight").view.dtype, DType::kF32);
}

TEST(ConvertWeights, ConvolutionsOfWholeBlocksAreRounded) {
  const std::vector<float> values = waves(3 * 64 * 9);
  Checkpoint whole = checkpoint_of(values, 3, 64 * 9), odd = checkpoint_of(values, 3, 64 * 9),
             matrix = checkpoint_of(values, 3, 64 * 9);
  whole.tensors.at("blocks.0.weight").view.shape = {3, 64, 3, 3};
  odd.tensors.at("blocks.0.weight").view.shape = {16, 12, 3, 3};
  for (Checkpoint* c : {&whole, &odd, &matrix}) ASSERT_TRUE(round_convolutions(*c).ok());
  EXPECT_EQ(odd.tensors.at("blocks.0.weight").view.dtype, DType::kF32);
  EXPECT_EQ(matrix.tensors.at("blocks.0.weight").view.dtype, DType::kF32);
  const TensorView& view = whole.tensors.at("blocks.0.weight").view;
  EXPECT_EQ(view.dtype, DType::kBF16);
  EXPECT_THAT(view.shape, ::testing::ElementsAre(3, 64, 3, 3));
  const std::vector<float> rounded = unpacked(whole);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_LE(std::abs(rounded[i] - values[i]), std::abs(values[i]) * 0x1p-8f);
}

TEST(ConvertWeights, ZerosAndTinyValuesGiveZeros) {
  std::vector<float> values(64, 0.0f);
  values[40] = 1e-9f;  // its scale is below the least float16
  Checkpoint checkpoint = checkpoint_of(values, 1, 64);
  ASSERT_TRUE(convert_weights(checkpoint, DType::kQ8_0, kAll).ok());
  EXPECT_THAT(unpacked(checkpoint), ::testing::Each(0.0f));
}

TEST(ConvertWeights, WhatDoesNotFitOrIsNotWantedStays) {
  Checkpoint odd = checkpoint_of(waves(2 * 33), 2, 33), other = checkpoint_of(waves(64), 1, 64);
  ASSERT_TRUE(convert_weights(odd, DType::kQ8_0, kAll).ok());
  EXPECT_EQ(odd.tensors.at("blocks.0.weight").view.dtype, DType::kF32);
  ASSERT_TRUE(convert_weights(other, DType::kQ8_0, [](const std::string&) { return false; }).ok());
  EXPECT_EQ(other.tensors.at("blocks.0.weight").view.dtype, DType::kF32);
}

TEST(ConvertWeights, OtherTypesAreRefused) {
  Checkpoint checkpoint = checkpoint_of(waves(64), 1, 64);
  EXPECT_EQ(convert_weights(checkpoint, DType::kQ4_0, kAll).message(),
            "weights are converted to bf16, q8_0, w8a8, not to q4_0");
}

}  // namespace
}  // namespace redline
