#include "tensor/lora_up.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/dtype.h"

namespace redline {
namespace {

constexpr float kMinLoraGroup = 0x1p-100f;

/// Byte offsets of the scale of a row's group and of the first of the group's codes.
struct LoraPlace {
  int64_t scale, codes;
};
LoraPlace lora_place(int64_t row, int64_t rank, int64_t begin) {
  const int64_t lane = row % kRowPanelRows;
  const int64_t group = row / kRowPanelRows * lora_panel_bytes(rank) + lora_panel_bytes(begin);
  return {group + lane * 2, group + kLoraScaleBytes + lane * kLoraLineRanks};
}
int64_t lora_code_at(int64_t i) { return i / kLoraLineRanks * kLoraLineBytes + i % kLoraLineRanks; }

/// Returns max |value| / 127 as bfloat16, rounded up so that no code exceeds 127. NaN if a value is not finite.
uint16_t scale_of(const float* values, int64_t count) {
  float most = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) return f32_to_bf16(std::numeric_limits<float>::quiet_NaN());
    most = std::max(most, std::abs(values[i]));
  }
  if (most < kMinLoraGroup) return 0;
  const uint32_t bits = __builtin_bit_cast(uint32_t, most / 127);
  return static_cast<uint16_t>((bits + 0xffff) >> 16);
}

}  // namespace

void pack_lora_up(const float* up, int64_t rows, int64_t rank, uint8_t* packed) {
  constexpr uint8_t kZero = 128;
  std::memset(packed, 0, static_cast<size_t>(lora_up_bytes(rows, rank)));
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t begin = 0; begin < rank; begin += kLoraGroup) {
      const float* values = up + n * rank + begin;
      const int64_t count = std::min(kLoraGroup, rank - begin);
      const LoraPlace place = lora_place(n, rank, begin);
      const uint16_t scale = scale_of(values, count);
      std::memcpy(packed + place.scale, &scale, sizeof scale);
      const float stored = bf16_to_f32(scale), inverse = stored > 0 ? 1 / stored : 0;
      for (int64_t i = 0; i < lora_group_lines(rank, begin) * kLoraLineRanks; ++i) {
        const float code = i < count && inverse > 0 ? std::nearbyint(values[i] * inverse) : 0;
        packed[place.codes + lora_code_at(i)] = static_cast<uint8_t>(kZero + static_cast<int>(code));
      }
    }
}

void unpack_lora_up(const uint8_t* packed, int64_t rows, int64_t rank, float* up) {
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t r = 0; r < rank; ++r) {
      const int64_t begin = r / kLoraGroup * kLoraGroup;
      const LoraPlace place = lora_place(n, rank, begin);
      uint16_t scale;
      std::memcpy(&scale, packed + place.scale, sizeof scale);
      up[n * rank + r] = bf16_to_f32(scale) * static_cast<float>(packed[place.codes + lora_code_at(r - begin)] - 128);
    }
}

}  // namespace redline
