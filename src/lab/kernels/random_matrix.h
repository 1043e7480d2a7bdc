// Random weight matrices of any type, and the quantities in the error bounds of their products.
#pragma once

#include <vector>

#include "tensor/tensor_view.h"

namespace redline::lab {

/// Returns all types of weight matrices: f32, f16, bf16 and every block format.
std::vector<DType> weight_dtypes();

/// A random matrix [n, k], row-major; rows are whole blocks of the type. Plain values are normally distributed. In
/// block formats all code bits are random, and scales are random halves of either sign around 2^-4. One seed gives the
/// same bytes on every machine.
class RandomMatrix {
 public:
  RandomMatrix(DType dtype, int64_t n, int64_t k, uint64_t seed);
  TensorView view() const { return {dtype_, {n_, k_}, bytes_.data()}; }
  /// Unpacks row `n` to k values.
  void row(int64_t n, float* values) const;
  /// Computes |scale * code| + |min| of each value of the row, which bounds the rounding of their difference; |value|
  /// for plain types.
  void row_parts(int64_t n, float* parts) const;
  /// Computes the maximum change of each value of the row in linear_q8, which rounds the scales and minimums of 256
  /// elements to integers (linear_q8.inc).
  void row_moves(int64_t n, float* moves) const;

 private:
  DType dtype_;
  int64_t n_, k_;
  std::vector<uint8_t> bytes_;
};

/// Returns the next 64 random bits of splitmix64 (Steele, Lea and Flood 2014).
inline uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
/// Returns an approximately normal number with standard deviation `scale`: the sum of the four 16-bit parts of one
/// random number (Irwin-Hall), within 3.5 standard deviations.
inline float random_normal(uint64_t& state, float scale = 1.0f) {
  const uint64_t bits = next_random(state);
  const uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
  return (static_cast<float>(sum) - 131070.0f) * (scale / 37837.0f);
}

}  // namespace redline::lab
