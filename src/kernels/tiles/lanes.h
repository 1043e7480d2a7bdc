// Values of the 32 lanes of a warp. Kernel bodies in this folder are written for one warp: on a device, Lanes<T> is T,
// the value of this thread; on the host it holds the values of all 32 lanes, so that the same source runs on the
// emulated device (kernels/emu). Values that are equal in all lanes are plain scalars, and only they may decide
// branches.
//
// As in the kernel sources of the CPU, no std containers: nvcc compiles these headers for the device.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define TILE_FN __device__ __forceinline__
#define TILE_CONST_FN __host__ __device__ constexpr
// Unrolls loops over arrays of lanes, which are registers only where every index is a constant.
#define TILE_UNROLL _Pragma("unroll")
// Prevents unrolling of loops whose copies would spill registers that live across them.
#define TILE_ROLLED _Pragma("unroll 1")
#else
#define TILE_FN inline
#define TILE_CONST_FN constexpr
#define TILE_UNROLL
#define TILE_ROLLED
#endif

namespace redline::tiles {

inline constexpr int kWarpLanes = 32;

#ifdef __CUDACC__

template <class T>
using Lanes = T;

template <class T>
TILE_FN T select(bool mask, T a, T b) {
  return mask ? a : b;
}
template <class To, class From>
TILE_FN To convert(From x) {
  return static_cast<To>(x);
}
TILE_FN float bits_to_float(uint32_t bits) { return __uint_as_float(bits); }
TILE_FN uint32_t float_to_bits(float x) { return __float_as_uint(x); }

// CUDA's library functions, not the approximations: errors of a few units in the last place.
TILE_FN int popcount_of(uint32_t x) { return __popc(x); }
TILE_FN float exp_of(float x) { return expf(x); }
TILE_FN float tanh_of(float x) { return tanhf(x); }
TILE_FN float erfc_of(float x) { return erfcf(x); }
TILE_FN float sqrt_of(float x) { return sqrtf(x); }
TILE_FN float max_of(float a, float b) { return fmaxf(a, b); }
TILE_FN float log1p_of(float x) { return log1pf(x); }
TILE_FN double exp_of(double x) { return exp(x); }
TILE_FN double log_of(double x) { return log(x); }
TILE_FN float fma_of(float a, float b, float c) { return fmaf(a, b, c); }
TILE_FN double fma_of(double a, double b, double c) { return fma(a, b, c); }

#else

template <class T>
struct Lanes {
  T v[kWarpLanes];

  Lanes() = default;
  Lanes(T x) {  // NOLINT(google-explicit-constructor): a scalar is the same in all lanes
    for (T& lane : v) lane = x;
  }

#define REDLINE_LANES_BINARY(op)                                                    \
  friend Lanes operator op(const Lanes& a, const Lanes& b) {                        \
    Lanes r;                                                                        \
    for (int i = 0; i < kWarpLanes; ++i) r.v[i] = static_cast<T>(a.v[i] op b.v[i]); \
    return r;                                                                       \
  }                                                                                 \
  friend Lanes& operator op##=(Lanes& a, const Lanes& b) {                          \
    for (int i = 0; i < kWarpLanes; ++i) a.v[i] = static_cast<T>(a.v[i] op b.v[i]); \
    return a;                                                                       \
  }
  REDLINE_LANES_BINARY(+)
  REDLINE_LANES_BINARY(-)
  REDLINE_LANES_BINARY(*)
  REDLINE_LANES_BINARY(/)
  REDLINE_LANES_BINARY(%)
  REDLINE_LANES_BINARY(&)
  REDLINE_LANES_BINARY(|)
  REDLINE_LANES_BINARY(^)
  REDLINE_LANES_BINARY(<<)
  REDLINE_LANES_BINARY(>>)
#undef REDLINE_LANES_BINARY
#define REDLINE_LANES_COMPARE(op)                                   \
  friend Lanes<bool> operator op(const Lanes& a, const Lanes& b) {  \
    Lanes<bool> r;                                                  \
    for (int i = 0; i < kWarpLanes; ++i) r.v[i] = a.v[i] op b.v[i]; \
    return r;                                                       \
  }
  REDLINE_LANES_COMPARE(<)
  REDLINE_LANES_COMPARE(>)
  REDLINE_LANES_COMPARE(<=)
  REDLINE_LANES_COMPARE(>=)
  REDLINE_LANES_COMPARE(==)
  REDLINE_LANES_COMPARE(!=)
#undef REDLINE_LANES_COMPARE
  friend Lanes operator-(const Lanes& a) {
    Lanes r;
    for (int i = 0; i < kWarpLanes; ++i) r.v[i] = -a.v[i];
    return r;
  }
};

namespace detail {
/// Applies f to every lane.
template <class F, class T, class... More>
inline auto map(F f, const Lanes<T>& a, const More&... more) -> Lanes<decltype(f(a.v[0], more.v[0]...))> {
  Lanes<decltype(f(a.v[0], more.v[0]...))> r;
  for (int i = 0; i < kWarpLanes; ++i) r.v[i] = f(a.v[i], more.v[i]...);
  return r;
}
template <class T>
struct Identity {
  using Type = T;
};
template <class T>
using NotDeduced = typename Identity<T>::Type;
}  // namespace detail

inline Lanes<int> lane_index() {
  Lanes<int> r;
  for (int i = 0; i < kWarpLanes; ++i) r.v[i] = i;
  return r;
}
template <class T>
inline Lanes<T> select(const Lanes<bool>& mask, const Lanes<T>& a, const detail::NotDeduced<Lanes<T>>& b) {
  return detail::map([](bool m, T x, T y) { return m ? x : y; }, mask, a, b);
}
template <class To, class From>
inline Lanes<To> convert(const Lanes<From>& x) {
  return detail::map([](From lane) { return static_cast<To>(lane); }, x);
}
inline Lanes<float> bits_to_float(const Lanes<uint32_t>& bits) {
  return detail::map([](uint32_t b) { return __builtin_bit_cast(float, b); }, bits);
}
inline Lanes<uint32_t> float_to_bits(const Lanes<float>& x) {
  return detail::map([](float f) { return __builtin_bit_cast(uint32_t, f); }, x);
}
inline float bits_to_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t float_to_bits(float x) { return __builtin_bit_cast(uint32_t, x); }

#define REDLINE_LANES_MATH(name, expression)                                \
  inline Lanes<float> name(const Lanes<float>& lanes) {                     \
    return detail::map([](float x) -> float { return expression; }, lanes); \
  }                                                                         \
  inline float name(float x) { return expression; }
REDLINE_LANES_MATH(exp_of, std::exp(x))
REDLINE_LANES_MATH(tanh_of, std::tanh(x))
REDLINE_LANES_MATH(erfc_of, std::erfc(x))
REDLINE_LANES_MATH(sqrt_of, std::sqrt(x))
REDLINE_LANES_MATH(log1p_of, std::log1p(x))
#undef REDLINE_LANES_MATH
inline Lanes<float> max_of(const Lanes<float>& a, const Lanes<float>& b) {
  return detail::map([](float x, float y) { return x > y ? x : y; }, a, b);
}
inline float max_of(float a, float b) { return a > b ? a : b; }
inline int popcount_of(uint32_t x) { return __builtin_popcount(x); }
inline Lanes<int> popcount_of(const Lanes<uint32_t>& x) {
  return detail::map([](uint32_t lane) { return __builtin_popcount(lane); }, x);
}
inline double log_of(double x) { return std::log(x); }
inline Lanes<double> exp_of(const Lanes<double>& x) {
  return detail::map([](double lane) { return std::exp(lane); }, x);
}
inline Lanes<float> fma_of(const Lanes<float>& a, const Lanes<float>& b, const Lanes<float>& c) {
  return detail::map([](float x, float y, float z) { return std::fma(x, y, z); }, a, b, c);
}
inline Lanes<double> fma_of(const Lanes<double>& a, double b, const Lanes<double>& c) {
  return detail::map([b](double x, double y) { return std::fma(x, b, y); }, a, c);
}

#endif

#ifdef __CUDACC__

// Conversions in one instruction each. For numbers that are not finite, the bits may differ from those below.
TILE_FN float bf16_to_float(uint32_t bits) { return bits_to_float(bits << 16); }
TILE_FN uint32_t pack_bf16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
TILE_FN uint32_t float_to_bf16(float x) { return pack_bf16(x, 0.0f); }
TILE_FN float f16_to_float(uint32_t half) {
  float x;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, low;\n}" : "=f"(x) : "r"(half));
  return x;
}
TILE_FN uint32_t pack_f16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
TILE_FN uint32_t float_to_f16(float x) { return pack_f16(x, 0.0f); }

#else

/// Converts bfloat16 or float16 bits to float32; exact.
TILE_FN Lanes<float> bf16_to_float(const Lanes<uint32_t>& bits) { return bits_to_float(bits << uint32_t{16}); }
/// Rounds to nearest even; NaN stays NaN.
TILE_FN Lanes<uint32_t> float_to_bf16(const Lanes<float>& x) {
  const Lanes<uint32_t> bits = float_to_bits(x);
  const Lanes<uint32_t> rounded = (bits + uint32_t{0x7fff} + ((bits >> uint32_t{16}) & uint32_t{1})) >> uint32_t{16};
  const Lanes<bool> is_nan = (bits & uint32_t{0x7fffffff}) > Lanes<uint32_t>(uint32_t{0x7f800000});
  return select(is_nan, Lanes<uint32_t>((bits >> uint32_t{16}) | uint32_t{64}), rounded);
}
/// Packs two bfloat16 into a register of a fragment, `low` in the lower half.
TILE_FN Lanes<uint32_t> pack_bf16(const Lanes<float>& low, const Lanes<float>& high) {
  return float_to_bf16(low) | (float_to_bf16(high) << uint32_t{16});
}
/// Converts every float16 exactly.
TILE_FN Lanes<float> f16_to_float(const Lanes<uint32_t>& half) {
  const Lanes<uint32_t> magnitude = half & uint32_t{0x7fff}, sign = (half & uint32_t{0x8000}) << uint32_t{16};
  const Lanes<float> small = convert<float>(convert<int32_t>(magnitude)) * 0x1p-24f;  // subnormal
  const Lanes<bool> is_special = magnitude >= Lanes<uint32_t>(uint32_t{0x7c00});
  const Lanes<uint32_t> large =
      (magnitude << uint32_t{13}) + select(is_special, Lanes<uint32_t>(uint32_t{0x70000000}), uint32_t{0x38000000});
  const Lanes<bool> is_small = magnitude < Lanes<uint32_t>(uint32_t{0x0400});
  return bits_to_float(select(is_small, float_to_bits(small), large) | sign);
}
/// Rounds to nearest even; values above 65504 become infinity.
TILE_FN Lanes<uint32_t> float_to_f16(const Lanes<float>& x) {
  const Lanes<uint32_t> bits = float_to_bits(x), sign = (bits >> uint32_t{16}) & uint32_t{0x8000};
  const Lanes<uint32_t> magnitude = bits & uint32_t{0x7fffffff};
  // Below 2^-14, adding 0.5 leaves the code of a subnormal in the lowest bits of the sum, rounded by the addition.
  const Lanes<uint32_t> small = float_to_bits(bits_to_float(magnitude) + 0.5f) - uint32_t{0x3f000000};
  const Lanes<uint32_t> odd = (magnitude >> uint32_t{13}) & uint32_t{1};
  const Lanes<uint32_t> normal = (magnitude - uint32_t{0x38000000} + uint32_t{0xfff} + odd) >> uint32_t{13};
  const Lanes<uint32_t> infinite =
      select(magnitude > Lanes<uint32_t>(uint32_t{0x7f800000}), Lanes<uint32_t>(uint32_t{0x7e00}), uint32_t{0x7c00});
  const Lanes<uint32_t> finite = select(magnitude < Lanes<uint32_t>(uint32_t{0x38800000}), small, normal);
  return sign | select(magnitude >= Lanes<uint32_t>(uint32_t{0x47800000}), infinite, finite);
}
TILE_FN Lanes<uint32_t> pack_f16(const Lanes<float>& low, const Lanes<float>& high) {
  return float_to_f16(low) | (float_to_f16(high) << uint32_t{16});
}

#endif

}  // namespace redline::tiles
