// Weight matrices of any type with known values: row-major bytes, the same unpacked, and the same packed for kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "support/guarded_buffer.h"
#include "tensor/blocks/all.h"
#include "tensor/packed_weight.h"

namespace redline::testing {

/// Where the half-precision fields of a block lie; -1 for none.
struct HalfFields {
  DType dtype;
  int offsets[2];
};
inline constexpr HalfFields kHalfFields[] = {
    {DType::kQ4_0, {0, -1}},  {DType::kQ4_1, {0, 2}},    {DType::kQ5_0, {0, -1}},   {DType::kQ5_1, {0, 2}},
    {DType::kQ8_0, {0, -1}},  {DType::kQ2_K, {80, 82}},  {DType::kQ3_K, {108, -1}}, {DType::kQ4_K, {0, 2}},
    {DType::kQ5_K, {0, 2}},   {DType::kQ6_K, {208, -1}}, {DType::kIQ4_NL, {0, -1}}, {DType::kIQ4_XS, {0, -1}},
    {DType::kIQ3_S, {0, -1}}, {DType::kTQ1_0, {52, -1}}, {DType::kTQ2_0, {64, -1}},
};

/// Types that a weight matrix may have.
inline std::vector<DType> weight_types() {
  std::vector<DType> types = {DType::kF32, DType::kF16, DType::kBF16};
#define REDLINE_ADD(F) types.push_back(DType::k##F);
  REDLINE_BLOCK_FORMATS(REDLINE_ADD)
  REDLINE_ROW_FORMATS(REDLINE_ADD)
#undef REDLINE_ADD
  return types;
}

/// One of each kind: floats, blocks of codes, and rows of codes with a scale.
inline std::vector<DType> each_kind_of_weight() {
  std::vector<DType> types = {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_0};
#define REDLINE_ADD(F) types.push_back(DType::k##F);
  REDLINE_ROW_FORMATS(REDLINE_ADD)
#undef REDLINE_ADD
  return types;
}

struct RandomWeight {
  DType dtype;
  int64_t n, k;
  std::vector<uint8_t> bytes;  ///< row-major
  std::vector<float> values;   ///< row-major
  std::vector<float> parts;    ///< |scale * code| + |min| of each value: bounds the rounding of their difference
  std::vector<float> moves;    ///< what linear_q8 moves each value by: see linear_q8.inc
  std::vector<float> largest;  ///< the magnitude that scales and minimums of 256 elements of a row allow
  GuardedBuffer<uint8_t> packed;

  TensorView view() const { return {dtype, {n, k}, bytes.data()}; }

  /// Returns the distance by which linear_requantized moves value i: half a step, of which 127 are the largest of 256
  /// elements, and 2 units of 1/64 of one: of A times the code, of the product, of B and of the division. See
  /// linear_requantized.inc.
  double requantized_moves(size_t i) const { return double{largest[i]} / 127 * (0.5 + 2.0 / 64) * (1 + 0x1p-14); }

  /// Every bit of the codes is random; scales are random halves of either sign around 2^-4.
  RandomWeight(DType type, int64_t rows, int64_t cols, uint32_t seed)
      : dtype(type), n(rows), k(cols), packed(packed_bytes(type, rows, cols)) {
    std::mt19937 random(seed * 2654435761u + static_cast<uint32_t>(type));
    std::normal_distribution<float> normal;
    bytes.resize(static_cast<size_t>(row_bytes(type, k) * n));
    values.resize(static_cast<size_t>(n * k));
    if (type == DType::kF32 || type == DType::kF16 || type == DType::kBF16) {
      for (int64_t i = 0; i < n * k; ++i) {
        const float value = normal(random);
        const uint16_t half = type == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
        if (type == DType::kF32) std::memcpy(&bytes[static_cast<size_t>(i) * 4], &value, 4);
        else std::memcpy(&bytes[static_cast<size_t>(i) * 2], &half, 2);
      }
    } else if (dtype_info(type).row_bytes > 0) {
      for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
      for (int64_t i = 0; i < n; ++i) {
        const float scale = normal(random) / 16;
        std::memcpy(&bytes[static_cast<size_t>(i * row_bytes(type, k) + k)], &scale, sizeof(scale));
      }
    } else {
      for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
      const int64_t block_bytes = dtype_info(type).block_bytes;
      for (size_t block = 0; block < bytes.size(); block += static_cast<size_t>(block_bytes)) {
        if (type == DType::kMXFP4) bytes[block] = static_cast<uint8_t>(118 + random() % 10);
        for (const HalfFields& fields : kHalfFields) {
          if (fields.dtype != type) continue;
          for (int offset : fields.offsets) {
            if (offset < 0) continue;
            const uint16_t half = f32_to_f16(normal(random) / 16);
            std::memcpy(&bytes[block + static_cast<size_t>(offset)], &half, 2);
          }
        }
      }
    }
    for (int64_t i = 0; i < n; ++i) unpack_row(type, bytes.data() + i * row_bytes(type, k), values.data() + i * k, k);
    for (float value : values) parts.push_back(std::abs(value));
    moves.resize(values.size());
    largest.resize(values.size());
#define REDLINE_PARTS(F) \
  if (type == DType::k##F) add_bounds<blocks::F>();
    REDLINE_BLOCK_FORMATS(REDLINE_PARTS)
#undef REDLINE_PARTS
    pack_row_panels(view(), 0, (n + 15) / 16, packed.data());
  }

 private:
  // Where a block does not have integers itself, linear_q8 rounds the minimums of 256 elements of a row to integers of
  // 12 bits and, where codes are below 16, their scales to integers of 9 bits: by half a power of two that is at most
  // the largest over 2^11 and 2^8.
  template <class Format>
  void add_bounds() {
    constexpr bool kIsNarrow = Format::kMaxCode + Format::kOffset <= 16, kHasIntegers = Format::kElements == 256;
    for (int64_t begin = 0; begin < n * k;) {
      const int64_t end = std::min(begin + 256, (begin / k + 1) * k);
      float largest_scale = 0, largest_min = 0, largest_value = 0;
      const auto for_elements = [&](const auto& body) {
        for (int64_t i = begin; i < end; i += Format::kElements) {
          int8_t codes[Format::kElements];
          float scales[Format::kElements / Format::kGroup] = {}, mins[Format::kElements / Format::kGroup] = {};
          Format::unpack_i8(bytes.data() + i / Format::kElements * Format::kBytes, codes, scales, mins);
          for (int64_t j = 0; j < Format::kElements; ++j)
            body(static_cast<size_t>(i + j), std::abs(static_cast<float>(codes[j])), scales[j / Format::kGroup],
                 mins[j / Format::kGroup]);
        }
      };
      for_elements([&](size_t, float, float scale, float min) {
        largest_scale = std::max(largest_scale, std::abs(scale));
        largest_min = std::max(largest_min, std::abs(min));
        largest_value = std::max({largest_value, std::abs(scale * Format::kMaxCode - min), std::abs(min)});
      });
      for_elements([&](size_t i, float code, float, float) {
        if (!kHasIntegers) moves[i] = (kIsNarrow ? code * largest_scale * 0x1p-9f : 0.0f) + largest_min * 0x1p-12f;
        largest[i] = largest_value;
      });
      begin = end;
    }
    for (size_t block = 0; block * Format::kBytes < bytes.size(); ++block) {
      int8_t codes[Format::kElements];
      float scales[Format::kElements / Format::kGroup] = {}, mins[Format::kElements / Format::kGroup] = {};
      Format::unpack_i8(bytes.data() + block * Format::kBytes, codes, scales, mins);
      for (size_t i = 0; i < Format::kElements; ++i) {
        const size_t g = i / Format::kGroup;
        parts[block * Format::kElements + i] = std::abs(scales[g] * static_cast<float>(codes[i])) + std::abs(mins[g]);
      }
    }
  }
};

}  // namespace redline::testing
