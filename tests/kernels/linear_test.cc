// linear and linear_q8 of every instruction set and weight type against sums in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/linear/linear_prefetch.h"
#include "support/random_weight.h"
#include "support/special_values.h"

namespace redline {
namespace {

using testing::GuardedBuffer;
using testing::RandomWeight;
using testing::weight_types;

constexpr int64_t kRows = 33;  // the most in the sweep

struct Scratch {
  alignas(64) uint8_t bytes[kScratchBytes];
};
Scratch& linear_scratch() {
  static Scratch s;
  return s;
}

struct Isa {
  const char* name;
  CpuKernels table;
};
/// Every set that this CPU has; the others are named once.
const std::vector<Isa>& supported_isas() {
  static const std::vector<Isa> list = [] {
    std::vector<Isa> found;
    int count = 0;
    const CpuIsa* isas = cpu_isas(&count);
    for (int i = 0; i < count; ++i) {
      if (!isas[i].supported()) {
        std::cout << "skipped: this CPU has no " << isas[i].name << "\n";
        continue;
      }
      Result<CpuKernels> table = cpu_kernels_for(isas[i].name);
      EXPECT_TRUE(table.ok()) << table.status().to_string();
      if (table.ok()) found.push_back({isas[i].name, *table});
    }
    return found;
  }();
  return list;
}

// y = x W^T + bias + residual in float64, and what its error bounds are made of.
struct Reference {
  std::vector<double> y;
  std::vector<double> magnitude;  ///< sum |x w| + |bias| + |residual|
};
template <class X>
Reference reference(const X* x, int64_t x_stride, int64_t rows, const RandomWeight& w, const float* bias,
                    const float* residual, int64_t y_stride) {
  Reference ref;
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < w.n; ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < w.k; ++k) {
        const double product = double{x[m * x_stride + k]} * double{w.values[static_cast<size_t>(n * w.k + k)]};
        sum += product;
        magnitude += std::abs(product);
      }
      if (bias) sum += double{bias[n]}, magnitude += std::abs(double{bias[n]});
      const double rest = residual ? double{residual[m * y_stride + n]} : 0.0;
      sum += rest;
      magnitude += std::abs(rest);
      ref.y.push_back(sum);
      ref.magnitude.push_back(magnitude);
    }
  }
  return ref;
}

void fill_normal(float* p, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < count; ++i) p[i] = normal(random);
}

struct LinearCase {
  int64_t n, k;
  int64_t x_stride, y_stride;
  RandomWeight w;
  GuardedBuffer<float> x, bias, residual;

  LinearCase(DType type, int64_t out, int64_t in, int64_t rows = kRows)
      : n(out), k(in), x_stride(in + 3), y_stride(out + 5), w(type, out, in, static_cast<uint32_t>(out * 1000 + in)),
        // The last row ends where it must not be read past.
        x((rows - 1) * x_stride + in), bias(out), residual((rows - 1) * y_stride + out) {
    fill_normal(x.data(), x.size(), 1);
    // The size of x changes every 32 elements, so kI8Grouped rounds them with different steps.
    constexpr float kSizes[] = {1, 0.4f, 0.05f, 0.2f, 0.01f, 3};
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t i = 0; i < in; ++i) x[m * x_stride + i] *= kSizes[(i / kQ8Step + m) % 6];
    fill_normal(bias.data(), bias.size(), 2);
    fill_normal(residual.data(), residual.size(), 3);
  }

  LinearArgs args(int64_t rows, float* y) {
    LinearArgs a = {};
    a.x = x.data();
    a.x_stride = x_stride;
    a.rows = rows;
    a.weight = w.packed.data();
    a.out_features = n;
    a.in_features = k;
    a.n_begin = 0;
    a.n_end = n;
    a.bias = bias.data();
    a.residual = residual.data();
    a.y = y;
    a.y_stride = y_stride;
    a.scratch = linear_scratch().bytes;
    return a;
  }
};

/// One entry of a table, called with x in float32 whatever form it reads.
struct LinearFn {
  const CpuKernels* table;
  ActivationLayout form;
  void (*fn)(const LinearArgs&);

  static LinearFn exact(const CpuKernels& t, DType type) {
    return {&t, ActivationLayout::kF32, t.linear[static_cast<int>(type)]};
  }
  static LinearFn q8(const CpuKernels& t, DType type) {
    return {&t, ActivationLayout::kI8Grouped, t.linear_q8[static_cast<int>(type)]};
  }
  explicit operator bool() const { return fn != nullptr; }
  void operator()(LinearArgs a) const {
    std::vector<uint8_t> prepared;
    if (form != ActivationLayout::kF32) {
      prepared.resize(static_cast<size_t>(activation_layout_bytes(form, a.rows, a.in_features)) + 64);
      auto* out = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(prepared.data()) + 63) / 64 * 64);
      table->prepare_x[static_cast<int>(form)](
          {static_cast<const float*>(a.x), a.x_stride, a.in_features, 0, a.rows, 0, a.in_features, out});
      a.x = out;
    }
    if (form == ActivationLayout::kBf16Tiled && table->worker_begin) table->worker_begin();  // the tile unit's shape
    fn(a);
    if (form == ActivationLayout::kBf16Tiled && table->worker_end) table->worker_end();
  }
};

/// `tolerance(m, n, magnitude)` bounds the error of one element.
template <class Tolerance>
void check_case(LinearFn linear, LinearCase& c, const Reference& ref, Tolerance tolerance) {
  GuardedBuffer<float> y((kRows - 1) * c.y_stride + c.n);
  std::fill_n(y.data(), y.size(), kUntouched);
  linear(c.args(kRows, y.data()));
  for (int64_t m = 0; m < kRows; ++m)
    for (int64_t n = 0; n < c.n; ++n) {
      const auto i = static_cast<size_t>(m * c.n + n);
      ASSERT_LE(std::abs(double{y[m * c.y_stride + n]} - ref.y[i]), tolerance(m, n, ref.magnitude[i]))
          << "m " << m << " n " << n << ": " << y[m * c.y_stride + n] << " expected " << ref.y[i];
    }
  for (int64_t m = 0; m + 1 < kRows; ++m)
    for (int64_t n = c.n; n < c.y_stride; ++n) ASSERT_EQ(y[m * c.y_stride + n], kUntouched) << "written past N";

  // Fewer rows, from any first row, in any tile of columns, with y in place of residual, give the same bits.
  for (int64_t rows : {0, 1, 2, 7, 12, 13}) {
    for (int64_t first : {int64_t{0}, int64_t{5}, kRows - rows}) {
      GuardedBuffer<float> part(rows == 0 ? 0 : (rows - 1) * c.y_stride + c.n);
      for (int64_t i = 0; i < part.size(); ++i) part[i] = c.residual[first * c.y_stride + i];
      const int64_t cut = c.n > 16 ? 16 * (1 + first % 2) : c.n;
      for (int64_t begin = 0; begin < c.n; begin += cut) {
        LinearArgs a = c.args(rows, part.data());
        a.x = &c.x[first * c.x_stride];
        a.residual = part.data();
        a.n_begin = begin;
        a.n_end = std::min(begin + cut, c.n);
        linear(a);
      }
      for (int64_t m = 0; m < rows; ++m)
        ASSERT_EQ(std::memcmp(part.data() + m * c.y_stride, y.data() + (first + m) * c.y_stride,
                              static_cast<size_t>(c.n) * 4),
                  0)
            << rows << " rows from row " << first << ", row " << m << ", differ from the same rows among " << kRows;
    }
  }
}

// Even and odd k are summed apart: K/2 terms, each rounded at most twice (product and sum where there is no fused
// multiply-add), so an element passes through at most K/2 + 1 roundings there and three more (the two sums, bias,
// residual). Every rounding is at most 2^-24 of a partial sum, which the magnitude bounds; 1.01 covers second order.
double float_bound(int64_t k, double magnitude) {
  return (static_cast<double>((k + 1) / 2) + 4) * 0x1p-24 * 1.01 * magnitude;
}

// Rounding x to int8 moves element k by at most half the step of its 32 elements; the scale and its reciprocal are
// rounded too, which moves codes up to 127 by less than 2^-14 of that. So the sum moves by at most
//   sum_k x_error[k] (1 + 2^-14) |w[k]|.
// Scales and minimums as integers move w by at most RandomWeight::moves. Against x already rounded only that and the
// float32 steps remain, on partial sums that sum_k (|x| + x_error) (|scale code| + |min| + moves) bounds, each a
// rounding of 2^-24. A term passes one multiply-add of each group of at least 16 among its 256 elements, or a
// conversion and a product with the common scale; the conversion of the minimums, their multiply-add; that with the
// scale of x, itself rounded, and one more for each later 256; bias and residual: fewer than K / 16 * 2 + 7.
struct Q8Bound {
  double moved, rounding;  ///< error by rounding x; other errors
};
Q8Bound q8_bound(const LinearCase& c, const std::vector<double>& x_error, int64_t m, int64_t n) {
  double moved = 0, w_moved = 0;
  double magnitude = std::abs(double{c.bias[n]}) + std::abs(double{c.residual[m * c.y_stride + n]});
  for (int64_t k = 0; k < c.k; ++k) {
    const auto i = static_cast<size_t>(n * c.k + k);
    const double error = x_error[static_cast<size_t>(m * c.k + k)];
    moved += error * std::abs(double{c.w.values[i]});
    const double x = std::abs(double{c.x[m * c.x_stride + k]}) + error;
    w_moved += x * double{c.w.moves[i]};
    magnitude += x * (double{c.w.parts[i]} + double{c.w.moves[i]});
  }
  return {moved * (1 + 0x1p-14), w_moved + (static_cast<double>(c.k / 16) * 2 + 7) * 0x1p-24 * 1.01 * magnitude};
}

std::vector<int64_t> linear_in_features(DType type) {
  const int64_t block = dtype_info(type).block_elements;
  if (block == 1) return {1, 15, 16, 17, 97, 256, 1100};
  if (block == 32) return {32, 96, 256, 1120};
  return {256, 768};
}

void linear_check_type(DType type, int64_t n, int64_t k) {
  SCOPED_TRACE(::testing::Message() << dtype_info(type).name << " N " << n << " K " << k);
  LinearCase c(type, n, k);
  const Reference ref = reference(c.x.data(), c.x_stride, kRows, c.w, c.bias.data(), c.residual.data(), c.y_stride);
  // x as the int8 kernels see it, and the most by which that moves an element: 127 steps are the largest of its 256
  // elements, halved up to three times while the largest of its 32 fits.
  std::vector<double> x_rounded(static_cast<size_t>(kRows * k)), x_error(static_cast<size_t>(kRows * k));
  for (int64_t m = 0; m < kRows; ++m)
    for (int64_t g = 0; g < k; g += kQ8Group) {
      float largest = 0;
      const int64_t end = std::min(g + kQ8Group, k);
      for (int64_t i = g; i < end; ++i) largest = std::max(largest, std::abs(c.x[m * c.x_stride + i]));
      for (int64_t begin = g; begin < end; begin += kQ8Step) {
        const int64_t step_end = std::min(begin + kQ8Step, end);
        float of_step = 0, part = 1;
        for (int64_t i = begin; i < step_end; ++i) of_step = std::max(of_step, std::abs(c.x[m * c.x_stride + i]));
        while (part > 0.125f && of_step <= largest * part / 2) part /= 2;
        for (int64_t i = begin; i < step_end; ++i) {
          const float code = std::nearbyint(c.x[m * c.x_stride + i] * (127.0f / largest / part));
          x_rounded[static_cast<size_t>(m * k + i)] = double{largest / 127.0f} * double{part} * double{code};
          x_error[static_cast<size_t>(m * k + i)] = double{largest} * double{part} / 254;
        }
      }
    }
  std::vector<Q8Bound> bounds;
  for (int64_t m = 0; m < kRows; ++m)
    for (int64_t j = 0; j < n; ++j) bounds.push_back(q8_bound(c, x_error, m, j));
  const Reference rounded = reference(x_rounded.data(), k, kRows, c.w, c.bias.data(), c.residual.data(), c.y_stride);
  for (const Isa& isa : supported_isas()) {
    SCOPED_TRACE(isa.name);
    const LinearFn linear = LinearFn::exact(isa.table, type);
    ASSERT_TRUE(linear);
    check_case(linear, c, ref, [&](int64_t, int64_t, double magnitude) { return float_bound(k, magnitude); });
    const LinearFn linear_q8 = LinearFn::q8(isa.table, type);
    ASSERT_EQ(static_cast<bool>(linear_q8), dtype_info(type).is_block);
    if (!linear_q8) continue;
    const auto bound = [&](int64_t m, int64_t j) -> const Q8Bound& { return bounds[static_cast<size_t>(m * n + j)]; };
    check_case(linear_q8, c, rounded, [&](int64_t m, int64_t j, double) { return bound(m, j).rounding; });
    check_case(linear_q8, c, ref,
               [&](int64_t m, int64_t j, double) { return bound(m, j).moved + bound(m, j).rounding; });
  }
}

TEST(Linear, EveryTypeMatchesFloat64) {
  for (DType type : weight_types()) {
    for (int64_t n : {1, 15, 16, 17, 48, 97})
      for (int64_t k : linear_in_features(type)) linear_check_type(type, n, k);
    linear_check_type(type, 256, 2048);
  }
}

TEST(Linear, NoBiasNoResidualNoColumns) {
  for (const Isa& isa : supported_isas()) {
    SCOPED_TRACE(isa.name);
    const CpuKernels& table = isa.table;
    LinearCase c(DType::kBF16, 17, 33);
    GuardedBuffer<float> y((kRows - 1) * c.y_stride + c.n);
    LinearArgs a = c.args(kRows, y.data());
    a.bias = a.residual = nullptr;
    table.linear[static_cast<int>(DType::kBF16)](a);
    const Reference ref = reference(c.x.data(), c.x_stride, kRows, c.w, nullptr, nullptr, c.y_stride);
    for (int64_t m = 0; m < kRows; ++m)
      for (int64_t n = 0; n < c.n; ++n) {
        const auto i = static_cast<size_t>(m * c.n + n);
        ASSERT_LE(std::abs(double{y[m * c.y_stride + n]} - ref.y[i]), float_bound(c.k, ref.magnitude[i]));
      }
    std::fill_n(y.data(), y.size(), kUntouched);
    a.n_begin = a.n_end = 16;
    table.linear[static_cast<int>(DType::kBF16)](a);
    for (int64_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], kUntouched);
  }
}

// A gate multiplies what stands before the residual, in one rounding of its own: exactly this, from every kernel.
TEST(Linear, GateIsAFactorBeforeTheResidual) {
  for (const Isa& isa : supported_isas()) {
    SCOPED_TRACE(isa.name);
    for (DType type : weight_types()) {
      SCOPED_TRACE(dtype_info(type).name);
      const int64_t k = dtype_info(type).block_elements == 1 ? 97 : 256;
      const LinearFn tiles = {&isa.table, ActivationLayout::kBf16Tiled, isa.table.linear_tiles[static_cast<int>(type)]};
      for (const LinearFn& linear : {LinearFn::exact(isa.table, type), LinearFn::q8(isa.table, type), tiles}) {
        if (!linear) continue;
        for (int64_t n : {16, 37}) {
          LinearCase c(type, n, k);
          GuardedBuffer<float> gate(n), plain((kRows - 1) * c.y_stride + n), y((kRows - 1) * c.y_stride + n);
          fill_normal(gate.data(), n, 4);
          for (bool has_bias : {true, false})
            for (bool has_residual : {true, false}) {
              LinearArgs a = c.args(kRows, plain.data());
              a.residual = nullptr;
              if (!has_bias) a.bias = nullptr;
              linear(a);
              a.gate = gate.data();
              a.y = y.data();
              if (has_residual) a.residual = c.residual.data();
              linear(a);
              for (int64_t m = 0; m < kRows; ++m)
                for (int64_t j = 0; j < n; ++j) {
                  const float product = plain[m * c.y_stride + j] * gate[j];
                  const float want = has_residual ? product + c.residual[m * c.y_stride + j] : product;
                  ASSERT_EQ(y[m * c.y_stride + j], want) << "row " << m << ", column " << j;
                }
            }
        }
      }
    }
  }
}

// More rows, and more columns, than the sums in linear_scratch have room for.
TEST(Linear, ManyRowsGiveTheBitsOfOneRow) {
  struct Size {
    int64_t rows, cols;
  };
  for (const Isa& isa : supported_isas()) {
    SCOPED_TRACE(isa.name);
    const CpuKernels& table = isa.table;
    for (DType type : {DType::kBF16, DType::kF32, DType::kQ4_0, DType::kQ6_K}) {
      for (const LinearFn& linear : {LinearFn::exact(table, type), LinearFn::q8(table, type)}) {
        if (!linear) continue;
        for (const Size size : {Size{2100, 33}, Size{257, 545}, Size{199, 531}, Size{64, 531}}) {
          LinearCase c(type, size.cols, 768, size.rows);
          GuardedBuffer<float> y((size.rows - 1) * c.y_stride + c.n), one(c.n);
          linear(c.args(size.rows, y.data()));
          for (int64_t m = 0; m < size.rows; m += size.rows / 20) {
            LinearArgs a = c.args(1, one.data());
            a.x = &c.x[m * c.x_stride];
            a.residual += m * c.y_stride;
            linear(a);
            ASSERT_EQ(std::memcmp(one.data(), y.data() + m * c.y_stride, static_cast<size_t>(c.n) * 4), 0)
                << "row " << m << " of " << size.rows;
          }
        }
      }
    }
  }
}

// Memory that linear_q8 prefetches while it multiplies changes no bit of the result, wherever the memory lies.
TEST(LinearQ8, PrefetchesWithoutEffect) {
  const GuardedBuffer<uint8_t> behind(100);
  for (const Isa& isa : supported_isas()) {
    SCOPED_TRACE(isa.name);
    for (const int64_t rows : {1, 5, 16, 33}) {
      LinearCase c(DType::kQ4_0, 83, 512, rows);
      const LinearFn linear = LinearFn::q8(isa.table, DType::kQ4_0);
      GuardedBuffer<float> y((rows - 1) * c.y_stride + c.n), with((rows - 1) * c.y_stride + c.n);
      std::fill_n(y.data(), y.size(), kUntouched);
      std::fill_n(with.data(), with.size(), kUntouched);
      LinearArgs a = c.args(rows, y.data());
      linear(a);
      const LinearPrefetch::Piece pieces[] = {{behind.data(), 100}, {nullptr, 0}, {behind.data() + 99, 1}};
      LinearPrefetch prefetch;
      prefetch.pieces = pieces;
      prefetch.count = 3;
      a.end = &prefetch;
      a.y = with.data();
      linear(a);
      ASSERT_EQ(std::memcmp(y.data(), with.data(), static_cast<size_t>(y.size()) * 4), 0) << rows << " rows";
    }
  }
}

TEST(Linear, NaNAndInfinityGoWherePlainArithmeticSendsThem) {
  const float inf = INFINITY;
  for (const Isa& isa : supported_isas()) {
    SCOPED_TRACE(isa.name);
    const CpuKernels& table = isa.table;
    for (DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_K}) {
      SCOPED_TRACE(dtype_info(type).name);
      LinearCase c(type, 20, 256);
      c.x[0 * c.x_stride + 7] = NAN;
      c.x[1 * c.x_stride + 8] = inf;
      c.x[2 * c.x_stride + 9] = -inf;
      c.x[3 * c.x_stride + 9] = inf;
      c.x[3 * c.x_stride + 10] = inf;
      c.x[4 * c.x_stride + 3] = 3e38f;
      GuardedBuffer<float> y((kRows - 1) * c.y_stride + c.n);
      table.linear[static_cast<int>(type)](c.args(kRows, y.data()));
      const Reference ref = reference(c.x.data(), c.x_stride, kRows, c.w, c.bias.data(), c.residual.data(), c.y_stride);
      for (int64_t m = 0; m < kRows; ++m)
        for (int64_t n = 0; n < c.n; ++n) {
          const float got = y[m * c.y_stride + n];
          const double expected = ref.y[static_cast<size_t>(m * c.n + n)];
          if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(got)) << m << ", " << n;
          } else if (std::isinf(expected) || std::abs(expected) > 3.5e38) {
            ASSERT_EQ(got, expected > 0 ? inf : -inf) << m << ", " << n;
          } else if (m != 4) {
            ASSERT_TRUE(std::isfinite(got)) << m << ", " << n;
          }
        }
    }
  }
  // Half infinities and NaNs in the weight itself.
  for (const Isa& isa : supported_isas()) {
    SCOPED_TRACE(isa.name);
    const CpuKernels& table = isa.table;
    for (DType type : {DType::kF16, DType::kBF16}) {
      const int64_t k = 5;
      std::vector<uint16_t> bits(16 * 5, type == DType::kF16 ? f32_to_f16(1) : f32_to_bf16(1));
      const uint16_t weight_inf = type == DType::kF16 ? 0x7c00 : 0x7f80;
      bits[0 * 5 + 2] = weight_inf;
      bits[1 * 5 + 3] = weight_inf | 0x8000;
      bits[2 * 5 + 4] = weight_inf | 0x0020;
      bits[3 * 5 + 1] = 0x0001;  // the smallest subnormal
      const TensorView view{type, {16, k}, bits.data()};
      std::vector<uint8_t> packed(static_cast<size_t>(packed_bytes(type, 16, k)));
      pack_row_panels(view, 0, 1, packed.data());
      const float x[5] = {0, 1, 1, 1, 1};
      float y[16];
      LinearArgs a = {};
      a.x = x, a.x_stride = a.in_features = k, a.rows = 1, a.weight = packed.data(), a.out_features = a.n_end = 16;
      a.y = y, a.y_stride = 16, a.scratch = linear_scratch().bytes;
      table.linear[static_cast<int>(type)](a);
      EXPECT_EQ(y[0], inf);
      EXPECT_EQ(y[1], -inf);
      EXPECT_TRUE(std::isnan(y[2]));
      EXPECT_EQ(y[3], 3.0f);
      EXPECT_EQ(y[4], 4.0f);
    }
  }
}

// int8 has no infinity: a group of x that is not finite makes its row NaN, and only its row.
TEST(LinearQ8, WhatIsNotFiniteMakesItsRowNaN) {
  for (const Isa& isa : supported_isas()) {
    SCOPED_TRACE(isa.name);
    for (DType type : {DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
      LinearCase c(type, 20, 512);
      c.x[1 * c.x_stride + 7] = NAN;
      c.x[3 * c.x_stride + 300] = INFINITY;
      c.x[5 * c.x_stride + 511] = -INFINITY;
      for (int64_t k = 0; k < 512; ++k) c.x[6 * c.x_stride + k] = k % 2 ? 1e-35f : -1e-42f;  // counts as zero
      c.x[7 * c.x_stride + 5] = 3.4e38f;
      GuardedBuffer<float> y((kRows - 1) * c.y_stride + c.n);
      LinearFn::q8(isa.table, type)(c.args(kRows, y.data()));
      for (int64_t m = 0; m < kRows; ++m)
        for (int64_t n = 0; n < c.n; ++n) {
          const float got = y[m * c.y_stride + n];
          if (m == 1 || m == 3 || m == 5) {
            ASSERT_TRUE(std::isnan(got)) << m << ", " << n;
          } else if (m == 6) {
            ASSERT_EQ(got, c.bias[n] + c.residual[m * c.y_stride + n]);
          } else if (m != 7) {
            ASSERT_TRUE(std::isfinite(got)) << m << ", " << n;
          }
        }
    }
  }
}

// Integer sums are the same everywhere; with powers of two as scales and small sums, float32 is exact too.
TEST(LinearQ8, EverySetGivesTheSameBitsWhereFloatIsExact) {
  constexpr int64_t kIn = 256, kOut = 32;
  std::vector<uint8_t> q8(static_cast<size_t>(row_bytes(DType::kQ8_0, kIn) * kOut));
  std::mt19937 random(9);
  for (size_t block = 0; block < q8.size(); block += 34) {
    const uint16_t one = f32_to_f16(1.0f);
    std::memcpy(&q8[block], &one, 2);
    // The ends of int8 often: where sums of pairs would saturate 16 bits.
    for (size_t i = 2; i < 34; ++i) {
      const auto end = static_cast<uint8_t>(random() % 2 ? 128 : 127);
      q8[block + i] = random() % 3 ? end : static_cast<uint8_t>(random());
    }
  }
  std::vector<float> x(kIn);
  for (int64_t k = 0; k < kIn; ++k) x[static_cast<size_t>(k)] = k % 3 == 0 ? 127.0f : k % 3 == 1 ? -127.0f : 126.0f;
  const TensorView view{DType::kQ8_0, {kOut, kIn}, q8.data()};
  std::vector<uint8_t> packed(static_cast<size_t>(packed_bytes(DType::kQ8_0, kOut, kIn)));
  pack_row_panels(view, 0, kOut / 16, packed.data());
  for (const Isa& isa : supported_isas()) {
    SCOPED_TRACE(isa.name);
    float y[kOut];
    LinearArgs a = {};
    a.x = x.data(), a.x_stride = a.in_features = kIn, a.rows = 1, a.weight = packed.data();
    a.out_features = a.n_end = kOut, a.y = y, a.y_stride = kOut, a.scratch = linear_scratch().bytes;
    LinearFn::q8(isa.table, DType::kQ8_0)(a);
    for (int64_t n = 0; n < kOut; ++n) {
      int64_t expected = 0;
      for (int64_t k = 0; k < kIn; ++k) {
        const auto code = static_cast<int8_t>(q8[static_cast<size_t>((n * kIn + k) / 32 * 34 + 2 + k % 32)]);
        expected += static_cast<int64_t>(x[static_cast<size_t>(k)]) * code;
      }
      ASSERT_EQ(y[n], static_cast<float>(expected)) << "column " << n;
    }
  }
}

// Sums of integers are exact however a set multiplies bytes, and all vector sets add the same float32 numbers in the
// same order.
TEST(LinearQ8, VectorSetsGiveTheSameBits) {
  constexpr int64_t kOut = 83;
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    if (!dtype_info(type).is_block) continue;
    for (const int64_t in : {int64_t{512}, int64_t{768}}) {
      LinearCase c(type, kOut, in, 70);
      for (const int64_t rows : {1, 2, 3, 5, 6, 11, 33, 64, 65, 70}) {
        std::vector<float> first;
        for (const Isa& isa : supported_isas()) {
          const LinearFn linear = LinearFn::q8(isa.table, type);
          if (std::string_view(isa.name) == "generic" || !linear) continue;
          std::vector<float> y(static_cast<size_t>((rows - 1) * c.y_stride + c.n), kUntouched);
          linear(c.args(rows, y.data()));
          if (first.empty()) first = y;
          ASSERT_EQ(std::memcmp(first.data(), y.data(), y.size() * 4), 0)
              << isa.name << ", " << dtype_info(type).name << ", K " << in << ", " << rows << " rows";
        }
      }
    }
  }
}

TEST(LinearQ8, VeryLongRows) {
  constexpr int64_t kIn = 3 << 19;
  LinearCase c(DType::kQ4_0, 1, kIn, 2);
  double expected[2], bound[2];
  for (int64_t m = 0; m < 2; ++m) {
    expected[m] = double{c.bias[0]} + double{c.residual[m * c.y_stride]};
    bound[m] = 0;
    double magnitude = std::abs(expected[m]);
    for (int64_t g = 0; g < kIn; g += kQ8Group) {
      double largest = 0, weights = 0, moves = 0;
      for (int64_t k = g; k < g + kQ8Group; ++k) {
        const double x = double{c.x[m * c.x_stride + k]}, w = double{c.w.values[static_cast<size_t>(k)]};
        expected[m] += x * w;
        magnitude += std::abs(x * w);
        largest = std::max(largest, std::abs(x));
        weights += std::abs(w);
        moves += double{c.w.moves[static_cast<size_t>(k)]};
        bound[m] += std::abs(x) * double{c.w.moves[static_cast<size_t>(k)]};
      }
      bound[m] += largest / 254 * (1 + 0x1p-14) * (weights + moves);
    }
    bound[m] += static_cast<double>(kIn / 32 + 7) * 0x1p-24 * 1.02 * magnitude;
  }
  for (const Isa& isa : supported_isas()) {
    GuardedBuffer<float> y(c.y_stride + 1);
    LinearFn::q8(isa.table, DType::kQ4_0)(c.args(2, y.data()));
    for (int64_t m = 0; m < 2; ++m) EXPECT_LE(std::abs(double{y[m * c.y_stride]} - expected[m]), bound[m]) << isa.name;
  }
}

}  // namespace
}  // namespace redline
