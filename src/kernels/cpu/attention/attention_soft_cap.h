// cap tanh(x / cap): the soft cap of attention scores and of logits (Gemma Team 2024, arXiv:2408.00118).
#pragma once

#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {

/// Returns cap tanh(x / cap) for |x| >= 2^-70, relative error below 10 u, u = 2^-24; infinities give +-cap, NaN stays.
/// A softmax needs a relative bound: the error of a score is a relative error of its weight, and scores far below the
/// cap must not change. tanh is x P(x^2) / Q(x^2) with the coefficients of Eigen's ptanh.
REDLINE_INLINE VecF32 soft_cap(VecF32 x, VecF32 cap, VecF32 inverse) {
  const VecF32 bound = set1(7.90531111f);
  const VecF32 t = max(set1(-7.90531111f), min(bound, x * inverse));  // this order keeps a NaN
  const VecF32 square = t * t;
  VecF32 p = fma(square, set1(-2.76076847742355e-16f), set1(2.00018790482477e-13f));
  p = fma(p, square, set1(-8.60467152213735e-11f));
  p = fma(p, square, set1(5.12229709037114e-08f));
  p = fma(p, square, set1(1.48572235717979e-05f));
  p = fma(p, square, set1(6.37261928875436e-04f));
  p = fma(p, square, set1(4.89352455891786e-03f));
  VecF32 q = fma(square, set1(1.19825839466702e-06f), set1(1.18534705686654e-04f));
  q = fma(q, square, set1(2.26843463243900e-03f));
  q = fma(q, square, set1(4.89352518554385e-03f));
  return cap * (t * p / q);
}

/// Caps `count` scores in place; `count` is a multiple of kWidth.
[[gnu::noinline]] inline void cap_scores(float* scores, int64_t count, float cap) {
  const VecF32 most = set1(cap), inverse = set1(1.0f / cap);
  for (int64_t i = 0; i < count; i += kWidth)
    store(scores + i, soft_cap(load(scores + i, Full{}), most, inverse), Full{});
}

}  // namespace redline::REDLINE_ISA_NS
