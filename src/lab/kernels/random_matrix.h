// Random weight matrices of any type, and the quantities that bound the rounding of their products.
#pragma once

#include <vector>

#include "tensor/tensor_view.h"

namespace redline::lab {

/// Types that a weight matrix may have: f32, f16, bf16 and every block format.
std::vector<DType> weight_dtypes();

/// [n, k] row-major; k in whole blocks of the type. Plain values are normal. In block formats every bit of the codes is
/// random and scales are random halves of either sign around 2^-4. The same bytes for one seed on every machine.
class RandomMatrix {
 public:
  RandomMatrix(DType dtype, int64_t n, int64_t k, uint64_t seed);
  TensorView view() const { return {dtype_, {n_, k_}, bytes_.data()}; }
  /// Row `n` unpacked to k values.
  void row(int64_t n, float* values) const;
  /// |scale * code| + |min| of each value of the row: bounds the rounding of their difference. |value| of plain types.
  void row_parts(int64_t n, float* parts) const;

 private:
  DType dtype_;
  int64_t n_, k_;
  std::vector<uint8_t> bytes_;
};

/// splitmix64 (Steele, Lea and Flood 2014): the next 64 random bits.
inline uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
/// About normal with deviation `scale`: the sum of the four 16-bit parts of one draw (Irwin and Hall), within
/// 3.5 deviations.
inline float random_normal(uint64_t& state, float scale = 1.0f) {
  const uint64_t bits = next_random(state);
  const uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
  return (static_cast<float>(sum) - 131070.0f) * (scale / 37837.0f);
}

}  // namespace redline::lab
