#include "lab/kernels/random_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/blocks/all.h"

namespace redline::lab {
namespace {

/// Offsets in bytes of the half-precision fields of a block; -1: there is none.
struct HalfFields {
  DType dtype;
  int offsets[2];
};
constexpr HalfFields kHalfFields[] = {
    {DType::kQ4_0, {0, -1}},  {DType::kQ4_1, {0, 2}},    {DType::kQ5_0, {0, -1}},   {DType::kQ5_1, {0, 2}},
    {DType::kQ8_0, {0, -1}},  {DType::kQ2_K, {80, 82}},  {DType::kQ3_K, {108, -1}}, {DType::kQ4_K, {0, 2}},
    {DType::kQ5_K, {0, 2}},   {DType::kQ6_K, {208, -1}}, {DType::kIQ4_NL, {0, -1}}, {DType::kIQ4_XS, {0, -1}},
    {DType::kIQ3_S, {0, -1}}, {DType::kTQ1_0, {52, -1}}, {DType::kTQ2_0, {64, -1}},
};

template <class Format>
void block_parts(const uint8_t* block, int64_t blocks, float* parts) {
  for (int64_t b = 0; b < blocks; ++b, block += Format::kBytes, parts += Format::kElements) {
    int8_t codes[Format::kElements];
    float scales[Format::kElements / Format::kGroup] = {}, mins[Format::kElements / Format::kGroup] = {};
    Format::unpack_i8(block, codes, scales, mins);
    for (int64_t i = 0; i < Format::kElements; ++i) {
      const int64_t g = i / Format::kGroup;
      parts[i] = std::abs(scales[g] * static_cast<float>(codes[i])) + std::abs(mins[g]);
    }
  }
}

// Computes bounds of the rounding of scales and minimums, in formats whose blocks do not have them as integers: to 9
// bits for scales of codes below 16, to 12 bits for minimums.
template <class Format>
void block_moves(const uint8_t* row, int64_t k, float* moves) {
  constexpr bool kIsNarrow = Format::kMaxCode + Format::kOffset <= 16;
  for (int64_t begin = 0; begin < k; begin += 256) {
    const int64_t end = std::min<int64_t>(begin + 256, k);
    float largest = 0, largest_min = 0;
    for (int64_t i = begin; i < end; i += Format::kElements) {
      int8_t codes[Format::kElements];
      float scales[Format::kElements / Format::kGroup] = {}, mins[Format::kElements / Format::kGroup] = {};
      Format::unpack_i8(row + i / Format::kElements * Format::kBytes, codes, scales, mins);
      for (int64_t j = 0; j < Format::kElements; ++j) {
        largest = std::max(largest, std::abs(scales[j / Format::kGroup]));
        largest_min = std::max(largest_min, std::abs(mins[j / Format::kGroup]));
        moves[i + j] = std::abs(static_cast<float>(codes[j]));
      }
    }
    for (int64_t i = begin; i < end; ++i)
      moves[i] = Format::kElements == 256
                     ? 0.0f
                     : 1.01f * ((kIsNarrow ? moves[i] * largest * 0x1p-9f : 0.0f) + largest_min * 0x1p-12f);
  }
}

}  // namespace

std::vector<DType> weight_dtypes() {
  std::vector<DType> types = {DType::kF32, DType::kF16, DType::kBF16};
#define REDLINE_ADD(F) types.push_back(DType::k##F);
  REDLINE_BLOCK_FORMATS(REDLINE_ADD)
  REDLINE_ROW_FORMATS(REDLINE_ADD)
#undef REDLINE_ADD
  return types;
}

RandomMatrix::RandomMatrix(DType dtype, int64_t n, int64_t k, uint64_t seed)
    : dtype_(dtype), n_(n), k_(k), bytes_(static_cast<size_t>(row_bytes(dtype, k) * n)) {
  const DTypeInfo& type = dtype_info(dtype);
  uint64_t state = seed * 0x2545f4914f6cdd1du + static_cast<uint64_t>(dtype);
  if (!type.is_block) {
    for (int64_t i = 0; i < n * k; ++i) {
      const float value = random_normal(state);
      const uint16_t half = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
      if (dtype == DType::kF32) std::memcpy(&bytes_[static_cast<size_t>(i) * 4], &value, 4);
      else std::memcpy(&bytes_[static_cast<size_t>(i) * 2], &half, 2);
    }
    return;
  }
  for (size_t i = 0; i < bytes_.size(); i += 8) {
    const uint64_t bits = next_random(state);
    std::memcpy(&bytes_[i], &bits, std::min<size_t>(8, bytes_.size() - i));
  }
  if (type.row_bytes > 0) {
    for (int64_t i = 0; i < n; ++i) {
      const float scale = random_normal(state, 1.0f / 16);
      std::memcpy(&bytes_[static_cast<size_t>(i * row_bytes(dtype, k) + k)], &scale, sizeof(scale));
    }
    return;
  }
  const auto block_bytes = static_cast<size_t>(type.block_bytes);
  const HalfFields* fields = nullptr;
  for (const HalfFields& row : kHalfFields)
    if (row.dtype == dtype) fields = &row;
  for (size_t block = 0; block < bytes_.size(); block += block_bytes) {
    if (dtype == DType::kMXFP4) bytes_[block] = static_cast<uint8_t>(118 + next_random(state) % 10);
    if (fields == nullptr) continue;
    for (const int offset : fields->offsets) {
      if (offset < 0) continue;
      const uint16_t half = f32_to_f16(random_normal(state, 1.0f / 16));
      std::memcpy(&bytes_[block + static_cast<size_t>(offset)], &half, 2);
    }
  }
}

void RandomMatrix::row(int64_t n, float* values) const {
  unpack_row(dtype_, bytes_.data() + n * row_bytes(dtype_, k_), values, k_);
}

void RandomMatrix::row_parts(int64_t n, float* parts) const {
  const uint8_t* source = bytes_.data() + n * row_bytes(dtype_, k_);
  switch (dtype_) {
#define REDLINE_PARTS(F) \
  case DType::k##F: return block_parts<blocks::F>(source, k_ / blocks::F::kElements, parts);
    REDLINE_BLOCK_FORMATS(REDLINE_PARTS)
#undef REDLINE_PARTS
    default: break;
  }
  row(n, parts);
  for (int64_t i = 0; i < k_; ++i) parts[i] = std::abs(parts[i]);
}

void RandomMatrix::row_moves(int64_t n, float* moves) const {
  const uint8_t* source = bytes_.data() + n * row_bytes(dtype_, k_);
  switch (dtype_) {
#define REDLINE_MOVES(F) \
  case DType::k##F: return block_moves<blocks::F>(source, k_, moves);
    REDLINE_BLOCK_FORMATS(REDLINE_MOVES)
#undef REDLINE_MOVES
    default: std::fill_n(moves, k_, 0.0f);
  }
}

}  // namespace redline::lab
