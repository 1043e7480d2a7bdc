// The functions of activation.h, one vector at a time. Error bounds, with u = 2^-24 and s the argument of the
// exponential, wherever the result is a normal float:
//   silu, quick_gelu, gelu_tanh  all x / (1 + e^s): relative error below (6 + 4 |s|) u for s > 0, 6 u for s <= 0
//                                (silu: 6 u)
//   gelu                         relative error below 9 u; without fused multiply-add (9 + x^2 / 2) u
//   tanh, tanh3                  absolute error at most 4 u, 10 u
// -inf gives NaN in all but relu, tanh and tanh3, as the formulas do. Where e^s overflows, or nearly so, the result is
// zero, with an absolute error below 2e-36.
#pragma once

#include "kernels/cpu/activation.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {

REDLINE_INLINE VecF32 negative(VecF32 x) { return zero_f32() - x; }
REDLINE_INLINE VecF32 magnitude(VecF32 x) { return bits_f32(bits_i32(x) & set1_i32(0x7fffffff)); }

REDLINE_INLINE VecF32 silu(VecF32 x) { return x / (set1(1.0f) + exp(negative(x))); }

// gelu_tanh: (1 + tanh z) / 2 = 1 / (1 + e^(-2 z)), so nothing cancels.
#if defined(__AVX512F__)
/// Returns x / (1 + 2^t), zero from t = 125 on.
// 2^t to 1.04 u: a polynomial of degree 6 on [0, 1), fitted by reweighted least squares to 1.9e-9 relative, then
// scalef. The quotient uses a reciprocal to 2^-14 and one Newton step: a division alone takes as long as all of this.
REDLINE_INLINE VecF32 over_one_plus_exp2(VecF32 x, VecF32 t) {
  const VecF32 r = {_mm512_reduce_ps(t.v, 0x09)};  // t - floor(t), no exception; 0 for infinities
  VecF32 p = fma(r, set1(0x1.c72118p-13f), set1(0x1.461956p-10f));
  p = fma(p, r, set1(0x1.3d28p-7f));
  p = fma(p, r, set1(0x1.c685p-5f));
  p = fma(p, r, set1(0x1.ebfd9ep-3f));
  p = fma(p, r, set1(0x1.62e42ap-1f));
  p = fma(p, r, set1(1.0f));
  const __m512 d = _mm512_add_ps(_mm512_scalef_ps(p.v, t.v), _mm512_set1_ps(1.0f));
  const __m512 near = _mm512_rcp14_ps(d), error = _mm512_fnmadd_ps(d, near, _mm512_set1_ps(1.0f));
  const __mmask16 counts = _mm512_cmp_ps_mask(t.v, _mm512_set1_ps(125.0f), _CMP_NGT_UQ);  // true for NaN
  return {_mm512_mul_ps(x.v, _mm512_maskz_fmadd_ps(counts, error, near, near))};
}
REDLINE_INLINE VecF32 quick_gelu(VecF32 x) { return over_one_plus_exp2(x, x * set1(-2.45546696f)); }
REDLINE_INLINE VecF32 gelu_tanh(VecF32 x) {
  return over_one_plus_exp2(x, x * fma(x * x, set1(-0.102943240f), set1(-2.30220818f)));
}
#else
REDLINE_INLINE VecF32 quick_gelu(VecF32 x) { return x / (set1(1.0f) + exp(x * set1(-1.702f))); }
REDLINE_INLINE VecF32 gelu_tanh(VecF32 x) {
  const VecF32 s = x * fma(x * x, set1(-0.0713548163f), set1(-1.5957691216f));
  return x / (set1(1.0f) + exp(s));
}
#endif

// Returns x Phi(x). The tail Q(t) = Phi(-t), t >= 0, is e^(-t^2 / 2) R(t) with a smooth R: u P(u), u = 1 / (1 + 0.35
// t), P of degree 8, fitted by reweighted least squares to 3.3e-8 relative over t in [0, 15] (the form of Hastings
// 1955, also Abramowitz and Stegun 7.1.26). Using the tail for negative x keeps the relative accuracy there.
REDLINE_INLINE VecF32 gelu(VecF32 x) {
  const VecF32 t = min(set1(20.0f), magnitude(x));  // this order keeps a NaN; the tail is zero from 15 on
  const VecF32 u = set1(1.0f) / fma(t, set1(0.35f), set1(1.0f));
  VecF32 p = fma(u, set1(-0x1.ddcebcp-6f), set1(0x1.27074ep-3f));
  p = fma(p, u, set1(-0x1.060934p-2f));
  p = fma(p, u, set1(0x1.466bc0p-3f));
  p = fma(p, u, set1(-0x1.7d1350p-6f));
  p = fma(p, u, set1(0x1.b06d44p-4f));
  p = fma(p, u, set1(0x1.eac418p-4f));
  p = fma(p, u, set1(0x1.1e712ap-3f));
  p = fma(p, u, set1(0x1.1df1c0p-3f));
  // t^2 is kept in two parts, because its rounding error would be a relative error of the exponential.
  const VecF32 square = t * t, lost = fma(t, t, negative(square));
  VecF32 tail = p * u * exp(square * set1(-0.5f));
  tail = fma(tail, lost * set1(-0.5f), tail);
  const VecI32 is_negative = sar<31>(bits_i32(x));
  const VecI32 upper = bits_i32(set1(1.0f) - tail);
  return x * bits_f32(upper ^ ((bits_i32(tail) ^ upper) & is_negative));
}

REDLINE_INLINE VecF32 relu(VecF32 x) { return max(zero_f32(), x); }  // this order keeps a NaN

REDLINE_INLINE VecF32 tanh(VecF32 x) {
  const VecF32 e = exp(magnitude(x) * set1(-2.0f));
  const VecF32 y = (set1(1.0f) - e) / (set1(1.0f) + e);
  return bits_f32(bits_i32(y) | (bits_i32(x) & set1_i32(static_cast<int32_t>(0x80000000u))));
}

REDLINE_INLINE VecF32 tanh3(VecF32 x) {
  const VecF32 e = exp(magnitude(x) * set1(-2.0f / 3));
  const VecF32 y = set1(3.0f) * ((set1(1.0f) - e) / (set1(1.0f) + e));
  return bits_f32(bits_i32(y) | (bits_i32(x) & set1_i32(static_cast<int32_t>(0x80000000u))));
}

/// Calls body(f) with the function of that kind, so that loops are compiled once per function.
template <class Body>
REDLINE_INLINE void with_activation(Activation kind, const Body& body) {
  switch (kind) {
    case Activation::kSilu: return body([](VecF32 x) { return silu(x); });
    case Activation::kGelu: return body([](VecF32 x) { return gelu(x); });
    case Activation::kGeluTanh: return body([](VecF32 x) { return gelu_tanh(x); });
    case Activation::kQuickGelu: return body([](VecF32 x) { return quick_gelu(x); });
    case Activation::kRelu: return body([](VecF32 x) { return relu(x); });
    case Activation::kTanh: return body([](VecF32 x) { return tanh(x); });
    case Activation::kTanh3: return body([](VecF32 x) { return tanh3(x); });
  }
}

}  // namespace redline::REDLINE_ISA_NS
