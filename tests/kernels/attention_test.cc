// kv_append and attention: every instruction set and cache format against float64, and the promise that a row has the
// same bits whatever other rows share its call.
#include "support/isa_test.h"

namespace redline {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr const char* kFormatNames[] = {"f32", "f16", "bf16"};

using KvAppend = IsaTest;
using Attention = IsaTest;

/// A paged cache of one KV head among `kHeads`, pages in scattered order, everything unwritten NaN.
struct Cache {
  static constexpr int64_t kHeads = 2;
  KvFormat format;
  int64_t positions, head_dim, page_tokens;
  std::vector<uint32_t> k, v;  // elements of 2 or 4 bytes
  std::vector<int32_t> pages;

  Cache(KvFormat f, int64_t n, int64_t dim, int64_t page) : format(f), positions(n), head_dim(dim), page_tokens(page) {
    const int64_t num_pages = (n + page - 1) / page;
    k.assign(static_cast<size_t>((num_pages + 1) * page_stride()), 0xffffffffu);
    v = k;
    for (int64_t p = 0; p < num_pages; ++p) pages.push_back(static_cast<int32_t>((p * 7 + 3) % (num_pages + 1)));
    if ((num_pages + 1) % 7 == 0)
      for (int64_t p = 0; p < num_pages; ++p) pages[p] = static_cast<int32_t>(num_pages - p);
  }
  int64_t token_stride() const { return kHeads * head_dim; }
  int64_t page_stride() const { return page_tokens * token_stride(); }
  int64_t element(int64_t position, int64_t d) const {
    return pages[position / page_tokens] * page_stride() + position % page_tokens * token_stride() + d;
  }
  int32_t slot(int64_t position) const {
    return static_cast<int32_t>(pages[position / page_tokens] * page_tokens + position % page_tokens);
  }
  KvHeadView view() { return {k.data(), v.data(), page_stride(), token_stride(), page_tokens}; }
  float at(const std::vector<uint32_t>& data, int64_t position, int64_t d) const {
    const int64_t i = element(position, d);
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(data.data());
    if (format == KvFormat::kF32) return __builtin_bit_cast(float, data[i]);
    return format == KvFormat::kF16 ? f16_to_f32(halves[i]) : bf16_to_f32(halves[i]);
  }
};

float rounded(KvFormat format, float x) {
  if (format == KvFormat::kF32) return x;
  return format == KvFormat::kF16 ? f16_to_f32(f32_to_f16(x)) : bf16_to_f32(f32_to_bf16(x));
}

void append(const CpuKernels& kernels, Cache& cache, const std::vector<float>& k, const std::vector<float>& v) {
  std::vector<int32_t> slots;
  for (int64_t p = 0; p < cache.positions; ++p) slots.push_back(cache.slot(p));
  kernels.kv_append[static_cast<int>(cache.format)](
      {k.data(), v.data(), cache.head_dim, slots.data(), cache.positions, cache.head_dim, cache.view()});
}

TEST_P(KvAppend, RoundsToNearestAndTouchesNothingElse) {
  for (int f = 0; f < kNumKvFormats; ++f) {
    for (int64_t dim : {1, 3, 8, 15, 16, 17, 31, 64, 80, 127}) {
      Cache cache(static_cast<KvFormat>(f), 21, dim, 4);
      const int64_t stride = dim + 5;
      std::vector<float> k = test_values(21 * stride, dim, 3.0f), v = test_values(21 * stride, dim + 1, 1e-6f);
      k[0] = 65520.0f, k[stride] = kInf, k[2 * stride] = kNan, k[3 * stride] = -0.0f, k[4 * stride] = 3.4e38f;
      std::vector<int32_t> slots;
      for (int64_t p = 0; p < 21; ++p) slots.push_back(p == 7 ? -1 : cache.slot(p));
      kernels().kv_append[f]({k.data(), v.data(), stride, slots.data(), 21, dim, cache.view()});
      std::vector<bool> written(cache.k.size() * 2);
      for (int64_t p = 0; p < 21; ++p) {
        for (int64_t d = 0; d < dim && p != 7; ++d) {
          const float want = rounded(cache.format, k[p * stride + d]), got = cache.at(cache.k, p, d);
          ASSERT_TRUE(std::isnan(want) ? std::isnan(got)
                                       : __builtin_bit_cast(uint32_t, want) == __builtin_bit_cast(uint32_t, got))
              << kFormatNames[f] << " head_dim " << dim << ": " << want << " " << got;
          ASSERT_EQ(cache.at(cache.v, p, d), rounded(cache.format, v[p * stride + d]));
          written[cache.element(p, d)] = true;
        }
      }
      const int64_t elements = (6 + 1) * cache.page_stride();
      for (int64_t i = 0; i < elements; ++i) {
        if (written[i]) continue;
        const bool untouched = f == 0 ? cache.k[i] == 0xffffffffu && cache.v[i] == 0xffffffffu
                                      : reinterpret_cast<uint16_t*>(cache.k.data())[i] == 0xffff &&
                                            reinterpret_cast<uint16_t*>(cache.v.data())[i] == 0xffff;
        ASSERT_TRUE(untouched) << kFormatNames[f] << " head_dim " << dim << " element " << i;
      }
    }
  }
}

TEST_P(KvAppend, EveryHalfSurvives) {
  // With a window of 1 a row gets back the V of its own position: all 65536 patterns, stored and loaded.
  for (KvFormat format : {KvFormat::kF16, KvFormat::kBF16}) {
    const int64_t n = 128, dim = 512;
    Cache cache(format, n, dim, 16);
    std::vector<float> v(n * dim), q(n * dim), y(n * dim), scratch_space(kScratchBytes / 4 + 16);
    for (int64_t i = 0; i < n * dim; ++i) {
      const uint16_t bits = static_cast<uint16_t>(i);
      v[i] = format == KvFormat::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
    }
    append(kernels(), cache, q, v);
    for (int64_t i = 0; i < n * dim; ++i) {
      const uint16_t stored = reinterpret_cast<uint16_t*>(cache.v.data())[cache.element(i / dim, i % dim)];
      if (std::isnan(v[i])) {
        ASSERT_TRUE(std::isnan(cache.at(cache.v, i / dim, i % dim)));
      } else {
        ASSERT_EQ(stored, static_cast<uint16_t>(i));
      }
    }
    void* scratch = scratch_space.data() + (64 - reinterpret_cast<uintptr_t>(scratch_space.data()) % 64) % 64 / 4;
    kernels().attention[static_cast<int>(format)](
        {q.data(), dim, y.data(), dim, n, 1, dim, 0, 1, 1.0f, cache.pages.data(), cache.view(), scratch});
    for (int64_t i = 0; i < n * dim; ++i) {
      ASSERT_TRUE(y[i] == v[i] || (std::isnan(v[i]) && std::isnan(y[i]))) << v[i] << " " << y[i];
    }
  }
}

TEST_P(KvAppend, RoundsTiesToEven) {
  // All floats that share these top bits and end in one of a few patterns around the tie.
  for (KvFormat format : {KvFormat::kF16, KvFormat::kBF16}) {
    std::vector<float> v;
    for (uint32_t top = 0; top < 0x10000; top += 3)
      for (uint32_t low : {0x0000u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
        v.push_back(__builtin_bit_cast(float, top << 16 | low));
    const int64_t dim = 437, n = static_cast<int64_t>(v.size()) / dim;
    Cache cache(format, n, dim, 16);
    append(kernels(), cache, v, v);
    for (int64_t i = 0; i < n * dim; ++i) {
      const float want = rounded(format, v[i]), got = cache.at(cache.k, i / dim, i % dim);
      ASSERT_TRUE(std::isnan(want) ? std::isnan(got)
                                   : __builtin_bit_cast(uint32_t, want) == __builtin_bit_cast(uint32_t, got))
          << v[i] << ": " << want << " " << got;
    }
  }
}

struct Case {
  int64_t rows, group, head_dim, first_position, window, page_tokens;
};
std::vector<float> run(const CpuKernels& kernels, Cache& cache, const Case& c, const std::vector<float>& q,
                       int64_t row_begin, int64_t row_end) {
  static std::vector<char> space(kScratchBytes + 64);
  const uintptr_t start = reinterpret_cast<uintptr_t>(space.data());
  const int64_t stride = c.group * c.head_dim + 3;  // rows are not dense
  std::vector<float> y((row_end - row_begin) * stride, 77.0f);
  AttentionArgs a = {};
  a.q = q.data() + row_begin * stride;
  a.q_stride = a.y_stride = stride;
  a.y = y.data();
  a.rows = row_end - row_begin, a.group = c.group, a.head_dim = c.head_dim;
  a.first_position = c.first_position + row_begin, a.window = c.window;
  a.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  a.pages = cache.pages.data();
  a.cache = cache.view();
  a.scratch = space.data() + (64 - start % 64) % 64;
  kernels.attention[static_cast<int>(cache.format)](a);
  return y;
}

const Case kCases[] = {
    {1, 1, 64, 0, 0, 16},     // the first token
    {1, 4, 64, 200, 0, 16},   // decode
    {1, 3, 1, 70, 0, 32},     // the smallest head
    {1, 8, 128, 99, 40, 32},  // decode in a window
    {40, 2, 17, 0, 0, 8},     // prefill, odd head
    {37, 7, 80, 61, 0, 64},   // a later chunk
    {50, 1, 33, 20, 13, 1},   // window shorter than the prompt, pages of one token
    {9, 5, 511, 31, 0, 16},   // odd and large
    {3, 2, 512, 64, 64, 16},  // the largest
    {70, 1, 16, 0, 32, 16},   // window of one block, more rows than one tile of lines
};

TEST_P(Attention, AgreesWithReference) {
  for (int f = 0; f < kNumKvFormats; ++f) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(fmt::format("{} rows {} group {} head_dim {} first {} window {}", kFormatNames[f], c.rows, c.group,
                               c.head_dim, c.first_position, c.window));
      const int64_t n = c.first_position + c.rows;
      Cache cache(static_cast<KvFormat>(f), n, c.head_dim, c.page_tokens);
      append(kernels(), cache, test_values(n * c.head_dim, 1, 2.0f), test_values(n * c.head_dim, 2));
      const int64_t stride = c.group * c.head_dim + 3;
      const std::vector<float> q = test_values(c.rows * stride, 3, 3.0f);
      const std::vector<float> y = run(kernels(), cache, c, q, 0, c.rows);
      const double scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
      for (int64_t r = 0; r < c.rows; ++r) {
        for (int64_t g = 0; g < c.group; ++g) {
          const int64_t last = c.first_position + r,
                        begin = c.window > 0 ? std::max<int64_t>(0, last + 1 - c.window) : 0;
          const float* query = q.data() + r * stride + g * c.head_dim;
          std::vector<double> score;
          double top = -INFINITY, largest = 0, total = 0, query_norm = 0, key_norm = 0;
          for (int64_t d = 0; d < c.head_dim; ++d) query_norm += double{query[d]} * query[d];
          for (int64_t p = begin; p <= last; ++p) {
            double dot = 0, norm = 0;
            for (int64_t d = 0; d < c.head_dim; ++d) {
              const double k = cache.at(cache.k, p, d);
              dot += query[d] * k;
              norm += k * k;
              largest = std::max(largest, std::abs(double{cache.at(cache.v, p, d)}));
            }
            key_norm = std::max(key_norm, norm);
            score.push_back(dot * scale);
            top = std::max(top, score.back());
          }
          for (double& s : score) total += s = std::exp(s - top);
          // Twice the score error (numerator and denominator) makes the relative error of a weight; the weighted sum
          // and its divisor add one rounding for each position and a few for each block. See attention.kernel.cc.
          const double count = static_cast<double>(score.size()), dim = static_cast<double>(c.head_dim);
          const double bound =
              (2 * (dim + 2) * scale * std::sqrt(query_norm * key_norm) + 2 * (count + 4 * count / 32 + 16)) *
              kRounding;
          for (int64_t d = 0; d < c.head_dim; ++d) {
            double want = 0;
            for (int64_t p = begin; p <= last; ++p) want += score[p - begin] / total * cache.at(cache.v, p, d);
            ASSERT_NEAR(y[r * stride + g * c.head_dim + d], want, bound * largest) << "row " << r << " head " << g;
          }
        }
        for (int64_t i = c.group * c.head_dim; i < stride; ++i) ASSERT_EQ(y[r * stride + i], 77.0f);
      }
    }
  }
}

TEST_P(Attention, ARowHasTheSameBitsInEveryCall) {
  for (int f = 0; f < kNumKvFormats; ++f) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(fmt::format("{} rows {} group {} head_dim {} first {} window {}", kFormatNames[f], c.rows, c.group,
                               c.head_dim, c.first_position, c.window));
      const int64_t n = c.first_position + c.rows, stride = c.group * c.head_dim + 3;
      Cache cache(static_cast<KvFormat>(f), n, c.head_dim, c.page_tokens);
      append(kernels(), cache, test_values(n * c.head_dim, 1, 2.0f), test_values(n * c.head_dim, 2));
      const std::vector<float> q = test_values(c.rows * stride, 3, 3.0f);
      const std::vector<float> whole = run(kernels(), cache, c, q, 0, c.rows);
      for (int64_t chunk : {1, 3, 16}) {
        for (int64_t begin = 0; begin < c.rows; begin += chunk) {
          const int64_t end = std::min(c.rows, begin + chunk);
          const std::vector<float> part = run(kernels(), cache, c, q, begin, end);
          ASSERT_EQ(part, std::vector<float>(whole.begin() + begin * stride, whole.begin() + end * stride))
              << "rows " << begin << " to " << end;
        }
      }
      // Pages of another size hold the same values, so the bits are the same too.
      Cache other(static_cast<KvFormat>(f), n, c.head_dim, c.page_tokens == 16 ? 64 : 16);
      append(kernels(), other, test_values(n * c.head_dim, 1, 2.0f), test_values(n * c.head_dim, 2));
      ASSERT_EQ(run(kernels(), other, c, q, 0, c.rows), whole);
    }
  }
}

TEST_P(Attention, WhatARowDoesNotSeeCannotReachIt) {
  const Case c = {24, 3, 40, 50, 20, 16};
  const int64_t n = c.first_position + c.rows, stride = c.group * c.head_dim + 3;
  for (int f = 0; f < kNumKvFormats; ++f) {
    Cache cache(static_cast<KvFormat>(f), n, c.head_dim, c.page_tokens);
    std::vector<float> k = test_values(n * c.head_dim, 1), v = test_values(n * c.head_dim, 2);
    const std::vector<float> q = test_values(c.rows * stride, 3);
    append(kernels(), cache, k, v);
    const std::vector<float> clean = run(kernels(), cache, c, q, 0, c.rows);
    // Position 60 is seen by the rows at positions 60 to 79: rows 10 to 29.
    for (int64_t d = 0; d < c.head_dim; ++d) k[60 * c.head_dim + d] = kNan, v[60 * c.head_dim + d] = kInf;
    append(kernels(), cache, k, v);
    const std::vector<float> dirty = run(kernels(), cache, c, q, 0, c.rows);
    for (int64_t r = 0; r < c.rows; ++r) {
      for (int64_t i = 0; i < c.group * c.head_dim; ++i) {
        if (r < 10) {
          ASSERT_EQ(dirty[r * stride + i], clean[r * stride + i]) << r;
        } else {
          ASSERT_TRUE(std::isnan(dirty[r * stride + i])) << r;
        }
      }
    }
  }
}

TEST_P(Attention, LargeScoresDoNotOverflow) {
  // Scores of +-1e5: all weight on the best position.
  const Case c = {1, 1, 16, 70, 0, 16};
  Cache cache(KvFormat::kF32, 71, 16, 16);
  std::vector<float> k(71 * 16), v = test_values(71 * 16, 2);
  for (int64_t p = 0; p < 71; ++p)
    for (int64_t d = 0; d < 16; ++d) k[p * 16 + d] = p == 37 ? 100.0f : -100.0f + static_cast<float>(p);
  append(kernels(), cache, k, v);
  const std::vector<float> q(19, 250.0f);
  const std::vector<float> y = run(kernels(), cache, c, q, 0, 1);
  for (int64_t d = 0; d < 16; ++d) EXPECT_EQ(y[d], v[37 * 16 + d]);
}

TEST_P(Attention, NoRowsIsNothing) {
  Cache cache(KvFormat::kF32, 1, 8, 16);
  EXPECT_TRUE(run(kernels(), cache, {0, 2, 8, 0, 0, 16}, {}, 0, 0).empty());
}

REDLINE_INSTANTIATE_PER_ISA(KvAppend);
REDLINE_INSTANTIATE_PER_ISA(Attention);

}  // namespace
}  // namespace redline
