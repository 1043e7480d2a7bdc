// kv_append and attention: every instruction set and cache format against float64, and the promise that a row has the
// same bits whatever other rows share its call.
//
// over 600 lines: one paged cache, one set of cases and one reference serve all of its tests.
#include <array>
#include <map>
#include <tuple>

#include "kernels/cpu/attention/attention_args.h"
#include "support/isa_test.h"
#include "support/special_values.h"

namespace redline {
namespace {

constexpr int64_t kEverything = std::numeric_limits<int64_t>::max();
constexpr const char* kFormatNames[] = {"f32", "f16", "bf16"};

using KvAppend = IsaTest;
using Attention = IsaTest;

/// A paged cache of one KV head among `kHeads`, pages in scattered order, everything unwritten NaN.
struct Cache {
  static constexpr int64_t kHeads = 2;
  KvFormat format;
  int64_t positions, head_dim;
  std::vector<uint32_t> k, v;  // elements of 2 or 4 bytes
  std::vector<int32_t> pages;

  Cache(KvFormat f, int64_t n, int64_t dim, bool backwards = false) : format(f), positions(n), head_dim(dim) {
    const int64_t num_pages = (n + kKvPageTokens - 1) / kKvPageTokens;
    k.assign(static_cast<size_t>((num_pages + 1) * page_stride()), 0xffffffffu);
    v = k;
    for (int64_t p = 0; p < num_pages; ++p) pages.push_back(static_cast<int32_t>((p * 7 + 3) % (num_pages + 1)));
    if (backwards || (num_pages + 1) % 7 == 0)
      for (int64_t p = 0; p < num_pages; ++p) pages[p] = static_cast<int32_t>(num_pages - p);
  }
  int64_t width() const { return (head_dim + 1) / 2 * 2; }
  int64_t page_stride() const { return kHeads * kKvPageTokens * width(); }
  int64_t key_element(int64_t position, int64_t d) const {
    const int64_t token = position % kKvPageTokens, page = pages[position / kKvPageTokens] * page_stride();
    if (format == KvFormat::kBF16) {
      const int64_t step = d / 32 * 32, wide = std::min<int64_t>(32, width() - step);
      return page + token / 16 * 16 * width() + step * 16 + token % 16 * wide + d % 32;
    }
    return page + ((token / 16 * (width() / 2) + d / 2) * 16 + token % 16) * 2 + d % 2;
  }
  int64_t value_element(int64_t position, int64_t d) const {
    const int64_t token = position % kKvPageTokens, page = pages[position / kKvPageTokens] * page_stride();
    return page + (format == KvFormat::kBF16 ? d * kKvPageTokens + token : (token / 2 * width() + d) * 2 + token % 2);
  }
  int32_t slot(int64_t position) const {
    return static_cast<int32_t>(pages[position / kKvPageTokens] * kKvPageTokens + position % kKvPageTokens);
  }
  KvHeadView view() { return {k.data(), v.data(), page_stride()}; }
  float at(const std::vector<uint32_t>& data, int64_t i) const {
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(data.data());
    if (format == KvFormat::kF32) return __builtin_bit_cast(float, data[i]);
    return format == KvFormat::kF16 ? f16_to_f32(halves[i]) : bf16_to_f32(halves[i]);
  }
  float key(int64_t position, int64_t d) const { return at(k, key_element(position, d)); }
  float value(int64_t position, int64_t d) const { return at(v, value_element(position, d)); }
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
  constexpr int64_t kRows = 107;  // whole blocks and pages, some with a hole, tokens before and after
  for (int f = 0; f < kNumKvFormats; ++f) {
    for (int64_t dim : {1, 2, 3, 8, 15, 16, 17, 31, 64, 80, 127, 576, 640}) {
      for (int64_t first : {0, 5, 16}) {
        Cache cache(static_cast<KvFormat>(f), first + kRows, dim);
        const int64_t stride = dim + 5;
        std::vector<float> k = test_values(kRows * stride, dim, 3.0f), v = test_values(kRows * stride, dim + 1, 1e-6f);
        k[0] = 65520.0f, k[stride] = kInf, k[2 * stride] = kNan, k[3 * stride] = -0.0f, k[4 * stride] = 3.4e38f;
        const auto skipped = [](int64_t row) { return row == 7 || row == 30; };
        std::vector<int32_t> slots;
        for (int64_t p = 0; p < kRows; ++p) slots.push_back(skipped(p) ? -1 : cache.slot(first + p));
        kernels().kv_append[f]({k.data(), v.data(), stride, slots.data(), kRows, dim, cache.view()});
        std::vector<bool> key_written(cache.k.size() * 2), value_written(cache.k.size() * 2);
        for (int64_t p = 0; p < kRows; ++p) {
          for (int64_t d = 0; d < dim && !skipped(p); ++d) {
            const float want = rounded(cache.format, k[p * stride + d]), got = cache.key(first + p, d);
            ASSERT_TRUE(std::isnan(want) ? std::isnan(got)
                                         : __builtin_bit_cast(uint32_t, want) == __builtin_bit_cast(uint32_t, got))
                << kFormatNames[f] << " head_dim " << dim << ": " << want << " " << got;
            ASSERT_EQ(cache.value(first + p, d), rounded(cache.format, v[p * stride + d]));
            key_written[cache.key_element(first + p, d)] = true;
            value_written[cache.value_element(first + p, d)] = true;
          }
          if (dim % 2 != 0 && !skipped(p)) {
            ASSERT_EQ(__builtin_bit_cast(uint32_t, cache.key(first + p, dim)), 0u) << "padding " << dim;
            key_written[cache.key_element(first + p, dim)] = true;
          }
        }
        const int64_t elements = (static_cast<int64_t>(cache.pages.size()) + 1) * cache.page_stride();
        const auto untouched = [&](const std::vector<uint32_t>& data, int64_t i) {
          return f == 0 ? data[i] == 0xffffffffu : reinterpret_cast<const uint16_t*>(data.data())[i] == 0xffff;
        };
        for (int64_t i = 0; i < elements; ++i) {
          ASSERT_TRUE(key_written[i] || untouched(cache.k, i)) << kFormatNames[f] << " head_dim " << dim << " " << i;
          // A whole block may write the places of V that pad an odd head_dim.
          const int64_t in_head = i % cache.page_stride();
          const bool padding = cache.format != KvFormat::kBF16 && in_head < cache.page_stride() / 2 &&
                               in_head / 2 % cache.width() >= dim;
          ASSERT_TRUE(value_written[i] || padding || untouched(cache.v, i))
              << kFormatNames[f] << " head_dim " << dim << " " << i;
        }
      }
    }
  }
}

TEST_P(KvAppend, EveryHalfSurvives) {
  // With a window of 1 a row gets back the V of its own position: all 65536 patterns, stored and loaded.
  for (KvFormat format : {KvFormat::kF16, KvFormat::kBF16}) {
    const int64_t n = 128, dim = 512;
    Cache cache(format, n, dim);
    std::vector<float> v(n * dim), q(n * dim), y(n * dim), scratch_space(kScratchBytes / 4 + 16);
    for (int64_t i = 0; i < n * dim; ++i) {
      const uint16_t bits = static_cast<uint16_t>(i);
      v[i] = format == KvFormat::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
    }
    append(kernels(), cache, q, v);
    for (int64_t i = 0; i < n * dim; ++i) {
      const uint16_t stored = reinterpret_cast<uint16_t*>(cache.v.data())[cache.value_element(i / dim, i % dim)];
      if (std::isnan(v[i])) {
        ASSERT_TRUE(std::isnan(cache.value(i / dim, i % dim)));
      } else {
        ASSERT_EQ(stored, static_cast<uint16_t>(i));
      }
    }
    void* scratch = scratch_space.data() + (64 - reinterpret_cast<uintptr_t>(scratch_space.data()) % 64) % 64 / 4;
    for (int64_t row = 0; row < n; ++row) {  // one line a call: many may be rounded to bfloat16
      kernels().attention[static_cast<int>(format)]({q.data(), dim, y.data() + row * dim, dim, 1, 1, dim, row, 1, 1.0f,
                                                     cache.pages.data(), cache.view(), 0, kEverything, nullptr,
                                                     scratch});
    }
    // Products of bfloat16 may take subnormals for zero; by tiles the largest weight of a line may be 2^-32.
    const bool flushed = format == KvFormat::kBF16, tiles = kernels().worker_begin != nullptr;
    for (int64_t i = 0; i < n * dim; ++i) {
      const bool tiny = std::abs(v[i]) < (tiles ? 0x1p32f : 1.0f) * std::numeric_limits<float>::min();
      ASSERT_TRUE(y[i] == v[i] || (std::isnan(v[i]) && std::isnan(y[i])) || (flushed && tiny && y[i] == 0))
          << v[i] << " " << y[i];
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
    Cache cache(format, n, dim);
    append(kernels(), cache, v, v);
    for (int64_t i = 0; i < n * dim; ++i) {
      const float want = rounded(format, v[i]), got = cache.key(i / dim, i % dim);
      ASSERT_TRUE(std::isnan(want) ? std::isnan(got)
                                   : __builtin_bit_cast(uint32_t, want) == __builtin_bit_cast(uint32_t, got))
          << v[i] << ": " << want << " " << got;
    }
  }
}

/// Masks of a test: kBits hides positions and blocks by chance, and every fifth row sees nothing; kBlocks has whole
/// blocks only.
enum class TestMask : uint8_t { kNone, kBits, kBlocks };

struct AttentionCase {
  int64_t rows, group, head_dim, first_position, window;
  float soft_cap = 0;
  bool sinks = false;
  int64_t chunk = 0;
  bool slopes = false;
  TestMask mask = TestMask::kNone;
  bool is_causal = true;

  int64_t positions() const { return first_position + rows; }
  /// Only vectors compute ALiBi and masks.
  bool is_for_vectors() const { return slopes || mask != TestMask::kNone; }
};
/// The ALiBi slopes of the heads of a group.
constexpr float kSlopes[] = {0.5f, 0.00390625f, 0.25f, 0.0625f, 0.70710677f, 0.0f, 0.03125f, 0.125f};

/// Returns whether the mask lets a row see a position.
bool mask_shows(const AttentionCase& c, int64_t row, int64_t position) {
  const auto chance = [](int64_t a, int64_t b) {
    return (static_cast<uint64_t>(a * 131 + b * 7919 + 17) * 0x9e3779b97f4a7c15ull) >> 33;
  };
  if (c.mask == TestMask::kNone) return true;
  if (chance(row, position / kKvPageTokens) % 3 == 0) return false;
  return c.mask == TestMask::kBlocks || (row % 5 != 4 && chance(row + 1000, position) % 4 != 0);
}
struct MaskData {
  std::vector<int32_t> ranges, blocks, bits;
};
const MaskData& mask_of(const AttentionCase& c) {
  static std::map<std::tuple<TestMask, int64_t, int64_t>, MaskData> made;
  const auto [at, is_new] = made.try_emplace({c.mask, c.rows, c.positions()});
  MaskData& m = at->second;
  for (int64_t r = 0; is_new && r < c.rows; ++r) {
    m.ranges.push_back(static_cast<int32_t>(m.blocks.size()));
    for (int64_t block = 0; block * kKvPageTokens < c.positions(); ++block) {
      uint32_t bits = 0;
      for (int64_t i = 0; i < kKvPageTokens; ++i)
        bits |= static_cast<uint32_t>(mask_shows(c, r, block * kKvPageTokens + i)) << i;
      if (bits == 0) continue;
      m.blocks.push_back(static_cast<int32_t>(block));
      m.bits.push_back(static_cast<int32_t>(bits));
    }
    m.ranges.push_back(static_cast<int32_t>(m.blocks.size()));
  }
  return m;
}
/// Returns the positions that a row of the case sees.
std::vector<int64_t> seen_by(const AttentionCase& c, int64_t row) {
  const int64_t own = c.first_position + row;
  std::vector<int64_t> positions;
  for (int64_t p = 0; p < c.positions(); ++p)
    if ((p <= own || !c.is_causal) && (c.window == 0 || p > own - c.window) &&
        (c.chunk == 0 || p / c.chunk == own / c.chunk) && mask_shows(c, row, p))
      positions.push_back(p);
  return positions;
}

/// Logits that are added to the divisor; a head of the group has one, one very small and one above all scores.
constexpr float kSinks[] = {0.5f, -60.0f, 7.0f, 2.0f, -kInf, 40.0f, 1.0f, -1.0f};
AttentionArgs arguments(Cache& cache, const AttentionCase& c, const std::vector<float>& q, std::vector<float>& y,
                        int64_t row_begin, int64_t row_end) {
  static std::vector<char> space(kScratchBytes + 64);
  const uintptr_t start = reinterpret_cast<uintptr_t>(space.data());
  AttentionArgs a = {};
  a.q_stride = a.y_stride = c.group * c.head_dim + 3;  // rows are not dense
  a.q = q.data() + row_begin * a.q_stride;
  a.y = y.data();
  a.rows = row_end - row_begin, a.group = c.group, a.head_dim = c.head_dim;
  a.first_position = c.first_position + row_begin, a.window = c.window;
  a.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  a.pages = cache.pages.data();
  a.cache = cache.view();
  a.kv_end = kEverything;
  a.soft_cap = c.soft_cap;
  a.sinks = c.sinks ? kSinks : nullptr;
  a.chunk = c.chunk;
  a.is_causal = c.is_causal;
  a.kv_length = c.positions();
  a.slopes = c.slopes ? kSlopes : nullptr;
  if (c.mask != TestMask::kNone) {
    const MaskData& mask = mask_of(c);
    a.mask = {mask.ranges.data() + 2 * row_begin, mask.blocks.data(),
              c.mask == TestMask::kBits ? mask.bits.data() : nullptr};
  }
  a.scratch = space.data() + (64 - start % 64) % 64;
  return a;
}
using AttentionFn = void (*)(const AttentionArgs&);
std::vector<float> run(AttentionFn attend, Cache& cache, const AttentionCase& c, const std::vector<float>& q,
                       int64_t row_begin, int64_t row_end) {
  std::vector<float> y((row_end - row_begin) * (c.group * c.head_dim + 3), 77.0f);
  attend(arguments(cache, c, q, y, row_begin, row_end));
  return y;
}

/// The kernels of one table: vectors in every format, and by tiles, which the amx table takes for many lines and a
/// table with fast bfloat16 dots for images.
struct AttentionKernel {
  KvFormat format;
  bool tiles;
  AttentionFn attend;
  std::string name;

  /// Queries and weights are rounded to bfloat16, as keys and values are.
  bool rounds() const { return format == KvFormat::kBF16; }
  /// The relative error of a weight beyond float32, from rounding and e^x, which is good to 7.5e-5; by tiles of
  /// bfloat16 pages more, see docs/numerics.md.
  double weight_error() const {
    if (rounds()) return tiles ? 5.9e-3 : 0x1p-8 + 7.5e-5;
    return tiles ? 0x1p-9 + 1e-4 : 0;
  }
};
std::vector<AttentionKernel> kernels_to_test(const CpuKernels& table) {
  std::vector<AttentionKernel> all;
  for (int f = 0; f < kNumKvFormats; ++f) {
    const auto format = static_cast<KvFormat>(f);
    all.push_back({format, false, table.attention_vectors[f], kFormatNames[f]});
    if (table.attention_tiles[f] != nullptr)
      all.push_back({format, true, table.attention_tiles[f], fmt::format("{} by tiles", kFormatNames[f])});
  }
  return all;
}
std::string describe(const AttentionKernel& kernel, const AttentionCase& c) {
  return fmt::format(
      "{} rows {} group {} head_dim {} first {} window {} cap {} sinks {} chunk {} slopes {} mask {} causal {}",
      kernel.name, c.rows, c.group, c.head_dim, c.first_position, c.window, c.soft_cap, c.sinks, c.chunk, c.slopes,
      static_cast<int>(c.mask), c.is_causal);
}

const AttentionCase kCases[] = {
    {1, 1, 64, 0, 0},        // the first token
    {1, 4, 64, 200, 0},      // decode
    {1, 8, 64, 1300, 0},     // decode over three chunks
    {2, 5, 96, 511, 0},      // two rows on both sides of a chunk's end
    {1, 3, 1, 70, 0},        // the smallest head
    {1, 8, 128, 99, 40},     // decode in a window
    {3, 2, 256, 1200, 600},  // a window that begins in one chunk and ends in another
    {40, 2, 17, 0, 0},       // prefill, odd head
    {37, 7, 80, 61, 0},      // a later prompt, odd group
    {50, 1, 33, 20, 13},     // window shorter than the prompt
    {9, 5, 511, 31, 0},      // odd and large
    {3, 2, 512, 64, 64},     // whole tiles
    {70, 1, 16, 0, 32},      // window of one page, more rows than one tile of lines
    {64, 6, 64, 1000, 0},    // prefill over chunks
    {33, 3, 2, 500, 100},    // a small head
    {31, 1, 72, 225, 0},     // a head that is not whole tiles; one row less than 32, one position less than a chunk
    {33, 2, 128, 224, 0},    // one more of both
    {65, 1, 96, 0, 0},       // two passes of 32 lines and one line
    {64, 1, 160, 191, 64},   // a window whose pages end in the middle
    {40, 1, 512, 250, 0},    // several steps of head_dim
    {33, 2, 576, 10, 0},     // DeepSeek's
    {33, 2, 640, 250, 0},    // the largest
    // Soft caps above and below the scores, and sinks: few rows and many, over chunks, in windows.
    {1, 4, 64, 700, 0, 50.0f},
    {40, 2, 17, 30, 0, 3.0f},
    {37, 1, 128, 511, 300, 0.5f},
    {1, 8, 64, 600, 128, 0, true},
    {33, 4, 80, 300, 0, 0, true},
    {9, 8, 96, 250, 100, 20.0f, true},
    // Chunks: one row, rows on both sides of a border, chunks below and above a chunk of the kernel, with a window.
    {1, 4, 64, 700, 0, 0, false, 128},
    {40, 2, 17, 30, 0, 0, false, 32},
    {33, 1, 80, 250, 0, 0, false, 260},
    {70, 3, 64, 480, 0, 0, true, 512},
    {37, 2, 96, 600, 50, 3.0f, false, 77},
    {20, 1, 16, 0, 0, 0, false, 1},
    // Not causal: rows see positions after their own.
    {1, 1, 64, 0, 0, 0, false, 0, false, TestMask::kNone, false},
    {45, 2, 33, 0, 0, 0, true, 0, false, TestMask::kNone, false},
    {37, 3, 128, 500, 0, 2.0f, false, 0, false, TestMask::kNone, false},
    // ALiBi.
    {1, 8, 64, 1300, 0, 0, false, 0, true},
    {40, 5, 17, 30, 0, 0, false, 0, true},
    {37, 1, 80, 300, 100, 0, true, 0, true},
    {33, 2, 576, 240, 0, 9.0f, false, 200, true},
    // Masks.
    {1, 8, 64, 1300, 0, 0, false, 0, false, TestMask::kBits},
    {40, 2, 17, 30, 0, 0, false, 0, false, TestMask::kBits},
    {37, 3, 80, 511, 300, 0, true, 0, false, TestMask::kBlocks},
    {33, 1, 640, 250, 0, 0, false, 100, true, TestMask::kBits},
    {23, 4, 64, 400, 0, 2.0f, true, 0, false, TestMask::kBlocks, false},
    {70, 1, 31, 0, 0, 0, false, 0, false, TestMask::kBits, false},
};

/// Returns q * scale as the kernel has it. Kernels of bfloat16 pages multiply it by log2(e), because they compute
/// weights as powers of two, and round the product.
double query_of(const AttentionKernel& kernel, float q, double scale) {
  if (!kernel.rounds()) return q * scale;
  constexpr float kLog2E = 1.44269504f;
  return bf16_to_f32(f32_to_bf16(q * (static_cast<float>(scale) * kLog2E))) * std::log(2.0);
}

TEST_P(Attention, AgreesWithReference) {
  for (const AttentionKernel& kernel : kernels_to_test(kernels())) {
    for (const AttentionCase& c : kCases) {
      if (kernel.tiles && c.is_for_vectors()) continue;
      SCOPED_TRACE(describe(kernel, c));
      const int64_t n = c.positions();
      Cache cache(kernel.format, n, c.head_dim);
      append(kernels(), cache, test_values(n * c.head_dim, 1, 2.0f), test_values(n * c.head_dim, 2));
      const int64_t stride = c.group * c.head_dim + 3;
      const std::vector<float> q = test_values(c.rows * stride, 3, 3.0f);
      const std::vector<float> y = run(kernel.attend, cache, c, q, 0, c.rows);
      const double scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
      // The cache as [n, head_dim], the squared lengths of its keys and the largest element of each value.
      std::vector<double> keys, values, key_norms(static_cast<size_t>(n)), largest_values(static_cast<size_t>(n));
      for (int64_t p = 0; p < n; ++p)
        for (int64_t d = 0; d < c.head_dim; ++d) {
          keys.push_back(cache.key(p, d));
          values.push_back(cache.value(p, d));
          key_norms[p] += keys.back() * keys.back();
          largest_values[p] = std::max(largest_values[p], std::abs(values.back()));
        }
      for (int64_t r = 0; r < c.rows; ++r) {
        for (int64_t g = 0; g < c.group; ++g) {
          const std::vector<int64_t> seen = seen_by(c, r);
          const float* query = q.data() + r * stride + g * c.head_dim;
          std::vector<double> score, rounded_query;
          double top = -INFINITY, largest = 0, total = 0, query_norm = 0, key_norm = 0;
          for (int64_t d = 0; d < c.head_dim; ++d) {
            query_norm += double{query[d]} * query[d];
            rounded_query.push_back(query_of(kernel, query[d], scale));
          }
          for (const int64_t p : seen) {
            double dot = 0;
            for (int64_t d = 0; d < c.head_dim; ++d) dot += rounded_query[d] * keys[p * c.head_dim + d];
            largest = std::max(largest, largest_values[p]);
            key_norm = std::max(key_norm, key_norms[p]);
            score.push_back(c.soft_cap > 0 ? c.soft_cap * std::tanh(dot / double{c.soft_cap}) : dot);
            if (c.slopes) score.back() += double{kSlopes[g]} * static_cast<double>(p - c.first_position - r);
            top = std::max(top, score.back());
          }
          if (c.sinks) top = std::max(top, double{kSinks[g]}), total = std::exp(kSinks[g] - top);
          for (double& s : score) total += s = std::exp(s - top);
          // Twice the score error (numerator and denominator) makes the relative error of a weight; the weighted sum
          // and its divisor add one rounding for each position and a few for each block. See attention.kernel.cc.
          const double count = static_cast<double>(score.size()), dim = static_cast<double>(c.head_dim);
          const double scores = scale * std::sqrt(query_norm * key_norm);
          double bound = (2 * (dim + 4) * scores + 2 * (count + 4 * count / 32 + 16)) * kRounding;
          // A cap adds 10 roundings of a score. The exponent of a sink is rounded, in units of up to 2^7.
          if (c.soft_cap > 0) bound += 2 * 10 * scores * kRounding;
          if (c.sinks) bound += 2 * 128 * kRounding;
          // A bias is rounded with its slope, its product and its sum; the exponent grows by it.
          if (c.slopes) bound += 2 * 4 * double{kSlopes[g]} * static_cast<double>(n) * kRounding;
          // By tiles of float16 pages q and k have 16 bits (and the product of their rests is left out); of bfloat16
          // pages nothing more is rounded than the query, as here. Weights are rounded above and below the line.
          if (kernel.tiles) bound += std::expm1(2 * scores * (4 / 262144.0 + 3 * dim * kRounding));
          bound += 2 * kernel.weight_error();
          std::vector<double> want(static_cast<size_t>(c.head_dim));
          for (size_t i = 0; i < seen.size(); ++i)
            for (int64_t d = 0; d < c.head_dim; ++d) want[d] += score[i] / total * values[seen[i] * c.head_dim + d];
          for (int64_t d = 0; d < c.head_dim; ++d)
            ASSERT_NEAR(y[r * stride + g * c.head_dim + d], want[d], bound * largest) << "row " << r << " head " << g;
        }
        for (int64_t i = c.group * c.head_dim; i < stride; ++i) ASSERT_EQ(y[r * stride + i], 77.0f);
      }
    }
  }
}

// Rows that come after all positions, as images have them: kv_end bounds what they see.
TEST_P(Attention, RowsPastTheEndSeeAllPositions) {
  for (const AttentionKernel& kernel : kernels_to_test(kernels())) {
    for (const int64_t head_dim : {64, 80, 128}) {
      for (const int64_t n : {1, 31, 32, 33, 63, 65, 255, 257, 300}) {
        SCOPED_TRACE(fmt::format("{} head_dim {} positions {}", kernel.name, head_dim, n));
        constexpr int64_t kRows = 45;
        Cache cache(kernel.format, n, head_dim);
        append(kernels(), cache, test_values(n * head_dim, 1, 2.0f), test_values(n * head_dim, 2));
        const AttentionCase all = {kRows, 1, head_dim, n, 0};
        const std::vector<float> q = test_values(kRows * (head_dim + 3), 3, 3.0f);
        std::vector<float> y(q.size(), 77.0f);
        AttentionArgs a = arguments(cache, all, q, y, 0, kRows);
        a.kv_end = n;
        kernel.attend(a);
        // Each row alone, in the place of the last position, sees the same.
        for (int64_t r = 0; r < kRows; ++r) {
          const AttentionCase last = {1, 1, head_dim, n - 1, 0};
          const std::vector<float> row(q.begin() + r * (head_dim + 3), q.begin() + (r + 1) * (head_dim + 3));
          ASSERT_EQ(run(kernel.attend, cache, last, row, 0, 1),
                    std::vector<float>(y.begin() + r * (head_dim + 3), y.begin() + (r + 1) * (head_dim + 3)))
              << r;
        }
      }
    }
  }
}

TEST_P(Attention, AnImageOfRealSize) {
  constexpr int64_t kPositions = 4608, kRows = 40;
  for (const AttentionKernel& kernel : kernels_to_test(kernels())) {
    if (!kernel.tiles) continue;
    for (const int64_t head_dim : {64, 128}) {
      SCOPED_TRACE(fmt::format("{} head_dim {}", kernel.name, head_dim));
      Cache cache(kernel.format, kPositions, head_dim);
      append(kernels(), cache, test_values(kPositions * head_dim, 1, 2.0f), test_values(kPositions * head_dim, 2));
      const std::vector<float> q = test_values(kRows * (head_dim + 3), 3, 3.0f);
      std::vector<float> y(q.size(), 77.0f);
      AttentionArgs a = arguments(cache, {kRows, 1, head_dim, kPositions, 0}, q, y, 0, kRows);
      a.kv_end = kPositions;
      kernel.attend(a);
      double error = 0, size = 0;
      for (int64_t r = 0; r < kRows; r += 13) {
        std::vector<double> weight(kPositions), want(static_cast<size_t>(head_dim));
        double total = 0;
        for (int64_t p = 0; p < kPositions; ++p) {
          double dot = 0;
          for (int64_t d = 0; d < head_dim; ++d)
            dot += query_of(kernel, q[r * (head_dim + 3) + d], a.scale) * cache.key(p, d);
          total += weight[p] = std::exp(dot);
        }
        for (int64_t p = 0; p < kPositions; ++p)
          for (int64_t d = 0; d < head_dim; ++d) want[d] += weight[p] / total * cache.value(p, d);
        for (int64_t d = 0; d < head_dim; ++d) {
          const double difference = y[r * (head_dim + 3) + d] - want[d];
          error += difference * difference;
          size += want[d] * want[d];
        }
      }
      // Weights are off by 2.1e-3 of themselves in the mean square, by random sign, and so is a sum of theirs.
      EXPECT_LE(std::sqrt(error / size), 0x1p-8);
    }
  }
}

TEST_P(Attention, ARowHasTheSameBitsInEveryCall) {
  for (const AttentionKernel& kernel : kernels_to_test(kernels())) {
    for (const AttentionCase& c : kCases) {
      if (kernel.tiles && c.is_for_vectors()) continue;
      SCOPED_TRACE(describe(kernel, c));
      const int64_t n = c.first_position + c.rows, stride = c.group * c.head_dim + 3;
      Cache cache(kernel.format, n, c.head_dim);
      append(kernels(), cache, test_values(n * c.head_dim, 1, 2.0f), test_values(n * c.head_dim, 2));
      const std::vector<float> q = test_values(c.rows * stride, 3, 3.0f);
      const std::vector<float> whole = run(kernel.attend, cache, c, q, 0, c.rows);
      for (int64_t chunk : {1, 3, 16}) {
        for (int64_t begin = 0; begin < c.rows; begin += chunk) {
          const int64_t end = std::min(c.rows, begin + chunk);
          const std::vector<float> part = run(kernel.attend, cache, c, q, begin, end);
          ASSERT_EQ(part, std::vector<float>(whole.begin() + begin * stride, whole.begin() + end * stride))
              << "rows " << begin << " to " << end;
        }
      }
      // Other pages hold the same values, so the bits are the same too.
      Cache other(kernel.format, n, c.head_dim, true);
      append(kernels(), other, test_values(n * c.head_dim, 1, 2.0f), test_values(n * c.head_dim, 2));
      ASSERT_EQ(run(kernel.attend, other, c, q, 0, c.rows), whole);
    }
  }
}

TEST_P(Attention, PositionsCutAtChunksGiveTheSameBits) {
  for (const AttentionKernel& kernel : kernels_to_test(kernels())) {
    for (const AttentionCase& c : {AttentionCase{1, 4, 64, 2600, 0},
                                   {1, 1, 80, 511, 0},
                                   {2, 3, 17, 1535, 0},
                                   {20, 4, 32, 1100, 700},
                                   {1, 8, 128, 40, 0},
                                   {1, 8, 64, 1300, 0, 2.0f, true},
                                   {20, 2, 32, 1100, 700, 30.0f, true},
                                   {20, 2, 32, 1100, 0, 0, true, 555},
                                   {20, 2, 32, 1100, 0, 0, true, 0, false, TestMask::kNone, false},
                                   {1, 8, 64, 1300, 0, 0, false, 0, true},
                                   {20, 3, 17, 1100, 0, 0, true, 0, true, TestMask::kBits}}) {
      if (kernel.tiles && c.is_for_vectors()) continue;
      SCOPED_TRACE(describe(kernel, c));
      const int64_t n = c.first_position + c.rows, stride = c.group * c.head_dim + 3, lines = c.rows * c.group;
      Cache cache(kernel.format, n, c.head_dim);
      append(kernels(), cache, test_values(n * c.head_dim, 1, 2.0f), test_values(n * c.head_dim, 2));
      const std::vector<float> q = test_values(c.rows * stride, 3, 3.0f);
      const std::vector<float> whole = run(kernel.attend, cache, c, q, 0, c.rows);
      const int64_t first_chunk = c.window > 0 ? std::max<int64_t>(0, c.first_position + 1 - c.window) / kKvChunk : 0;
      const int64_t chunks = (n + kKvChunk - 1) / kKvChunk - first_chunk, size = attention_partial_floats(c.head_dim);
      for (const int64_t piece : {int64_t{1}, int64_t{2}, chunks}) {
        std::vector<float> partials(chunks * lines * size + 16, kNan), y(c.rows * stride, 77.0f);
        for (int64_t chunk = 0; chunk < chunks; chunk += piece) {
          AttentionArgs a = arguments(cache, c, q, y, 0, c.rows);
          a.kv_begin = (first_chunk + chunk) * kKvChunk;
          a.kv_end = std::min(first_chunk + chunk + piece, first_chunk + chunks) * kKvChunk;
          a.partials = partials.data() + chunk * lines * size;
          kernel.attend(a);
        }
        for (const float v : y) ASSERT_EQ(v, 77.0f);
        kernels().attention_merge({partials.data(), chunks, c.rows, c.group, c.head_dim, y.data(), stride, nullptr, 0,
                                   0, c.sinks ? kSinks : nullptr});
        if (!kernel.tiles || kernel.format != KvFormat::kBF16) {
          ASSERT_EQ(y, whole) << "pieces of " << piece;
          continue;
        }
        // A whole call adds block by block to the sums of the chunks before it: at most 100 roundings of 2^-24 each of
        // values in [-1, 1] and exponentials good to 1.2e-7 for each chunk, in either: 2.0e-5. And references of chunks
        // differ, so the exponent of a weight may be rounded otherwise, and one weight in thousands falls to the other
        // side between two of bfloat16: 2^-8 of its share, a twentieth.
        for (size_t i = 0; i < y.size(); ++i)
          ASSERT_NEAR(y[i], whole[i], 2.2e-4) << "pieces of " << piece << " at " << i;
      }
    }
  }
}

// Two sequences that begin with the same pages: these are read for the rows of both, the rest for each.
TEST_P(Attention, RowsOfSeveralSequencesOverSharedPagesGiveTheSameBits) {
  constexpr int64_t kShared = 3 * kKvChunk;
  for (const AttentionKernel& kernel : kernels_to_test(kernels())) {
    if (kernel.tiles && kernel.format == KvFormat::kBF16) continue;
    for (const auto& [rows, group, head_dim] :
         {std::array<int64_t, 3>{1, 7, 64}, {2, 1, 80}, {9, 4, 128}, {33, 2, 17}}) {
      const float cap = group == 4 ? 3.0f : 0;
      const bool sinks = group != 1;
      const AttentionCase cases[] = {{rows, group, head_dim, kShared + 5, 0, cap, sinks},
                                     {rows, group, head_dim, kShared + 700, 0, cap, sinks}};
      SCOPED_TRACE(describe(kernel, cases[0]));
      const int64_t n = kShared + 700 + rows, stride = group * head_dim + 3, size = attention_partial_floats(head_dim);
      Cache cache(kernel.format, n, head_dim);
      append(kernels(), cache, test_values(n * head_dim, 1, 2.0f), test_values(n * head_dim, 2));
      // The rows of both alternate in memory.
      const std::vector<float> q = test_values(2 * rows * stride, 3, 3.0f);
      std::vector<int32_t> places;
      std::vector<float> q_of[2];
      for (int s = 0; s < 2; ++s) {
        for (int64_t r = 0; r < rows; ++r) {
          places.push_back(static_cast<int32_t>(2 * r + s));
          q_of[s].insert(q_of[s].end(), q.begin() + (2 * r + s) * stride, q.begin() + (2 * r + s + 1) * stride);
        }
      }
      for (const int64_t first_piece : {int64_t{1}, int64_t{3}}) {
        const int64_t num_shared = 1 + 3 - first_piece, lines = 2 * rows * group;
        std::vector<float> shared(num_shared * lines * size, kNan), none;
        for (int64_t from = 0, to = first_piece; from < 3; from = to, to = 3) {
          AttentionArgs a = arguments(cache, cases[0], q, none, 0, 0);
          a.rows = 2 * rows;
          a.row_places = places.data();
          a.kv_begin = from * kKvChunk;
          a.kv_end = a.first_position = to * kKvChunk;
          a.merges_chunks = from == 0;
          a.partials = shared.data() + (from == 0 ? 0 : lines * size);
          kernel.attend(a);
        }
        for (int s = 0; s < 2; ++s) {
          const AttentionCase& c = cases[s];
          const int64_t chunks = (c.first_position + rows + kKvChunk - 1) / kKvChunk - 3;
          std::vector<float> own(chunks * rows * group * size, kNan), y(rows * stride, 77.0f);
          AttentionArgs a = arguments(cache, c, q_of[s], y, 0, rows);
          a.kv_begin = kShared;
          a.kv_end = kShared + chunks * kKvChunk;
          a.partials = own.data();
          kernel.attend(a);
          kernels().attention_merge({own.data(), chunks, rows, group, head_dim, y.data(), stride,
                                     shared.data() + s * rows * group * size, num_shared, lines * size,
                                     sinks ? kSinks : nullptr});
          ASSERT_EQ(y, run(kernel.attend, cache, c, q_of[s], 0, rows)) << "sequence " << s;
        }
      }
    }
  }
}

TEST_P(Attention, WhatARowDoesNotSeeCannotReachIt) {
  const AttentionCase c = {24, 3, 40, 50, 20};
  const int64_t n = c.first_position + c.rows, stride = c.group * c.head_dim + 3;
  for (const AttentionKernel& kernel : kernels_to_test(kernels())) {
    Cache cache(kernel.format, n, c.head_dim);
    std::vector<float> k = test_values(n * c.head_dim, 1), v = test_values(n * c.head_dim, 2);
    const std::vector<float> q = test_values(c.rows * stride, 3);
    append(kernels(), cache, k, v);
    const std::vector<float> clean = run(kernel.attend, cache, c, q, 0, kernel.tiles ? 10 : c.rows);
    // Position 60 is seen by the rows at positions 60 to 79: rows 10 to 29.
    for (int64_t d = 0; d < c.head_dim; ++d) k[60 * c.head_dim + d] = kNan, v[60 * c.head_dim + d] = kInf;
    append(kernels(), cache, k, v);
    const std::vector<float> dirty = run(kernel.attend, cache, c, q, 0, kernel.tiles ? 10 : c.rows);
    // By tiles, lines of one call may share what one of them sees.
    for (int64_t r = 0; r < (kernel.tiles ? 10 : c.rows); ++r) {
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

// A position that a mask hides from all rows of a call may have any key and any finite value.
TEST_P(Attention, KeysBehindAMaskMayBeAnything) {
  for (const AttentionKernel& kernel : kernels_to_test(kernels())) {
    if (kernel.tiles) continue;
    for (const AttentionCase& c : {AttentionCase{1, 4, 64, 600, 0, 0, true, 0, true, TestMask::kBits},
                                   {1, 3, 17, 100, 0, 2.0f, false, 0, false, TestMask::kBlocks}}) {
      SCOPED_TRACE(describe(kernel, c));
      const int64_t n = c.positions();
      const std::vector<float> q = test_values(c.group * c.head_dim + 3, 3, 3.0f);
      std::vector<float> k = test_values(n * c.head_dim, 1, 2.0f), v = test_values(n * c.head_dim, 2);
      Cache clean(kernel.format, n, c.head_dim), dirty(kernel.format, n, c.head_dim);
      append(kernels(), clean, k, v);
      for (int64_t p = 0; p < n; ++p) {
        if (mask_shows(c, 0, p)) continue;
        k[p * c.head_dim] = p % 2 == 0 ? kNan : kInf;
        v[p * c.head_dim] = 6e4f;  // finite in float16 too
      }
      append(kernels(), dirty, k, v);
      ASSERT_EQ(run(kernel.attend, dirty, c, q, 0, 1), run(kernel.attend, clean, c, q, 0, 1));
    }
  }
}

TEST_P(Attention, LargeScoresDoNotOverflow) {
  // Scores of +-1e5: all weight on the best position, wherever it stands in its chunk.
  const AttentionCase c = {1, 1, 16, 370, 0};
  for (const AttentionKernel& kernel : kernels_to_test(kernels())) {
    for (const int64_t best : {0, 37, 95, 255, 256, 370}) {
      SCOPED_TRACE(fmt::format("{} best {}", kernel.name, best));
      Cache cache(kernel.format, 371, 16);
      std::vector<float> k(371 * 16), v = test_values(371 * 16, 2);
      for (int64_t p = 0; p < 371; ++p)
        for (int64_t d = 0; d < 16; ++d) k[p * 16 + d] = p == best ? 100.0f : -100.0f + static_cast<float>(p) / 8;
      for (float& x : v) x = bf16_to_f32(f32_to_bf16(x));
      append(kernels(), cache, k, v);
      const std::vector<float> q(19, 250.0f);
      const std::vector<float> y = run(kernel.attend, cache, c, q, 0, 1);
      // By tiles the exponential is good to 7.5e-5.
      for (int64_t d = 0; d < 16; ++d) EXPECT_NEAR(y[d], cache.value(best, d), kernel.tiles ? 1e-3 : 0);
    }
  }
}

// Just above the subnormals a weight still counts; as one it is zero, because Intel's CPUs are slow with them.
TEST_P(Attention, WeightsBelowTheNormalNumbersAreZero) {
  const AttentionCase c = {1, 1, 16, 1, 0};
  std::vector<float> q(19), k(2 * 16), v(2 * 16, 1.0f);
  q[0] = 4;  // times the scale: 1
  for (int64_t d = 0; d < 16; ++d) v[16 + d] = 0x1p110f;
  for (const float score : {-86.0f, -88.0f, -100.0f}) {
    k[16] = score;
    Cache cache(KvFormat::kF32, 2, 16);
    append(kernels(), cache, k, v);
    const double weight = score < -87 ? 0 : std::exp(double{score});
    const float y = run(kernels().attention[static_cast<int>(KvFormat::kF32)], cache, c, q, 0, 1)[0];
    EXPECT_NEAR(y, 1 + 0x1p110 * weight, 2e-7) << score;
    EXPECT_EQ(y == 1.0f, weight == 0) << score;
  }
}

/// Attention of one query row to all positions, against float64.
void expect_row(const AttentionKernel& kernel, const Cache& cache, const float* q, const float* got) {
  const int64_t n = cache.positions, head_dim = cache.head_dim;
  const double scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  std::vector<double> score(static_cast<size_t>(n));
  double top = -INFINITY, total = 0, size = 0;
  for (int64_t p = 0; p < n; ++p) {
    double most = 0;
    for (int64_t d = 0; d < head_dim; ++d) {
      const double product = query_of(kernel, q[d], scale) * cache.key(p, d);
      score[p] += product;
      most += std::abs(product);
    }
    top = std::max(top, score[p]);
    size = std::max(size, most);
  }
  for (double& s : score) total += s = std::exp(s - top);
  // As in AgreesWithReference; float16 pages by tiles have q and k to 2^-16 each. Values are below 1.
  const double weights =
      kernel.tiles ? 2 * 5.9e-3 : 2 * (kernel.weight_error() + static_cast<double>(n + 100) * kRounding);
  const double bound =
      weights + std::expm1(2 * size * (4 / 65536.0 * kernel.tiles + 3 * static_cast<double>(head_dim) * kRounding));
  for (int64_t d = 0; d < head_dim; ++d) {
    double want = 0;
    for (int64_t p = 0; p < n; ++p) want += score[p] / total * cache.value(p, d);
    ASSERT_NEAR(got[d], want, bound) << "head_dim " << d;
  }
}

/// Rows of one head that all attend to all positions: each against float64, with the bits that it has alone.
void expect_rows(const AttentionKernel& kernel, Cache& cache, int64_t rows, const std::vector<float>& q) {
  const int64_t stride = cache.head_dim + 3;
  std::vector<float> y(q.size(), 77.0f);
  const AttentionCase all = {rows, 1, cache.head_dim, cache.positions, 0};
  const AttentionCase last = {1, 1, cache.head_dim, cache.positions - 1, 0};
  AttentionArgs a = arguments(cache, all, q, y, 0, rows);
  a.kv_end = cache.positions;
  kernel.attend(a);
  for (int64_t r = 0; r < rows; ++r) {
    SCOPED_TRACE(fmt::format("row {}", r));
    const std::vector<float> row(q.begin() + r * stride, q.begin() + (r + 1) * stride);
    const std::vector<float> got(y.begin() + r * stride, y.begin() + (r + 1) * stride);
    ASSERT_EQ(run(kernel.attend, cache, last, row, 0, 1), got);
    ASSERT_NO_FATAL_FAILURE(expect_row(kernel, cache, row.data(), got.data()));
  }
}

// Scores from far below the first ones to far above: weights of bfloat16 pages are made in another way there.
TEST_P(Attention, QueryRowsOfManyScalesShareACall) {
  constexpr int64_t kPositions = 300, kRows = 37;
  for (const AttentionKernel& kernel : kernels_to_test(kernels())) {
    for (const int64_t head_dim : {40, 64, 72, 80, 96, 128, 160, 256}) {
      SCOPED_TRACE(fmt::format("{} head_dim {}", kernel.name, head_dim));
      Cache cache(kernel.format, kPositions, head_dim);
      append(kernels(), cache, test_values(kPositions * head_dim, 1, 2.0f), test_values(kPositions * head_dim, 2));
      const int64_t stride = head_dim + 3;
      std::vector<float> q = test_values(kRows * stride, 3);
      for (int64_t i = 0; i < kRows * stride; ++i) q[i] *= std::exp2(static_cast<float>(i / stride % 9));
      ASSERT_NO_FATAL_FAILURE(expect_rows(kernel, cache, kRows, q));
    }
  }
}

// Every row has its own distance between its first scores and the largest ones, around those where an exponent of
// float32 ends: weights are 2^-32 times 2^distance.
TEST_P(Attention, ScoresFarAboveTheFirstOnes) {
  constexpr float kDistances[] = {0,      20,  131, 132,    133, 134,    157, 157.5f, 158, 158.5f, 159,
                                  159.5f, 160, 161, 161.5f, 162, 163,    189, 190,    200, 256,    288,
                                  414,    700, -93, -93.5f, -94, -94.5f, -95, -96,    -300};
  constexpr auto kRows = static_cast<int64_t>(std::size(kDistances) + 7);  // more than a pass of 32
  for (const AttentionKernel& kernel : kernels_to_test(kernels())) {
    for (const int64_t positions : {33, 300, 600}) {
      for (const int64_t head_dim : {1, 17, 64, 72, 128}) {
        SCOPED_TRACE(fmt::format("{} positions {} head_dim {}", kernel.name, positions, head_dim));
        Cache cache(kernel.format, positions, head_dim);
        std::vector<float> k = test_values(positions * head_dim, 1, 0.5f);
        for (int64_t p = 0; p < positions; ++p) k[p * head_dim] = 0;
        // Two positions of nearly the same score, in the second tile of 16 and in the last.
        k[21 * head_dim] = 8.0f;
        k[(positions - 1) * head_dim] = 7.96875f;
        append(kernels(), cache, k, test_values(positions * head_dim, 2));
        const int64_t stride = head_dim + 3;
        std::vector<float> q = test_values(kRows * stride, 3);
        for (int64_t r = 0; r < kRows; ++r)
          q[r * stride] =
              kDistances[r % std::size(kDistances)] * std::log(2.0f) / 8 * std::sqrt(static_cast<float>(head_dim));
        ASSERT_NO_FATAL_FAILURE(expect_rows(kernel, cache, kRows, q));
      }
    }
  }
}

// Around the 8, 16 and 32 of which vectors, tiles, pages and passes are made, and primes.
TEST_P(Attention, SizesAroundVectorsAndTiles) {
  constexpr int64_t kSizes[] = {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 61};
  for (const AttentionKernel& kernel : kernels_to_test(kernels())) {
    for (const int64_t head_dim : kSizes) {
      for (const int64_t positions : kSizes) {
        SCOPED_TRACE(fmt::format("{} head_dim {} positions {}", kernel.name, head_dim, positions));
        Cache cache(kernel.format, positions, head_dim);
        append(kernels(), cache, test_values(positions * head_dim, 1, 2.0f), test_values(positions * head_dim, 2));
        for (const int64_t rows : {1, 15, 33})
          ASSERT_NO_FATAL_FAILURE(expect_rows(kernel, cache, rows, test_values(rows * (head_dim + 3), 3, 3.0f)));
      }
    }
  }
}

// Its row is NaN; the others of the call do not change.
TEST_P(Attention, ANanInAQueryStaysInItsRow) {
  constexpr int64_t kPositions = 70, kRows = 37, kHeadDim = 40, kStride = kHeadDim + 3;
  for (const AttentionKernel& kernel : kernels_to_test(kernels())) {
    SCOPED_TRACE(kernel.name);
    Cache cache(kernel.format, kPositions, kHeadDim);
    append(kernels(), cache, test_values(kPositions * kHeadDim, 1, 2.0f), test_values(kPositions * kHeadDim, 2));
    std::vector<float> q = test_values(kRows * kStride, 3);
    const auto attend = [&] {
      std::vector<float> y(q.size(), 77.0f);
      AttentionArgs a = arguments(cache, {kRows, 1, kHeadDim, kPositions, 0}, q, y, 0, kRows);
      a.kv_end = kPositions;
      kernel.attend(a);
      return y;
    };
    const std::vector<float> clean = attend();
    q[5 * kStride + 3] = kNan, q[18 * kStride] = kNan, q[33 * kStride + kHeadDim - 1] = kNan;
    const std::vector<float> dirty = attend();
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t d = 0; d < kHeadDim; ++d)
        if (r == 5 || r == 18 || r == 33) ASSERT_TRUE(std::isnan(dirty[r * kStride + d])) << r;
        else ASSERT_EQ(dirty[r * kStride + d], clean[r * kStride + d]) << r;
  }
}

TEST_P(Attention, TilesServeManyLinesVectorsFew) {
  if (kernels().worker_begin == nullptr) GTEST_SKIP() << "no tile unit in this table";
  Result<CpuKernels> vectors = cpu_kernels_for("avx512");
  ASSERT_TRUE(vectors.ok());
  for (int f = 1; f < kNumKvFormats; ++f) {
    const bool always = f == static_cast<int>(KvFormat::kBF16);
    for (const auto& [rows, tiles] : {std::pair{int64_t{1}, always}, {2, always}, {3, true}, {40, true}}) {
      const AttentionCase c = {rows, 4, 64, 300, 0};
      const int64_t n = c.first_position + rows;
      Cache cache(static_cast<KvFormat>(f), n, 64);
      append(kernels(), cache, test_values(n * 64, 1, 2.0f), test_values(n * 64, 2));
      const std::vector<float> q = test_values(rows * (4 * 64 + 3), 3, 3.0f);
      EXPECT_EQ(run(kernels().attention[f], cache, c, q, 0, rows),
                run(tiles ? kernels().attention_tiles[f] : vectors->attention[f], cache, c, q, 0, rows))
          << rows;
    }
  }
}

TEST_P(Attention, NoRowsIsNothing) {
  Cache cache(KvFormat::kF32, 1, 8);
  EXPECT_TRUE(run(kernels().attention[0], cache, {0, 2, 8, 0, 0}, {}, 0, 0).empty());
  Cache halves(KvFormat::kF16, 1, 8);
  EXPECT_TRUE(run(kernels().attention_tiles[1], halves, {0, 2, 8, 0, 0}, {}, 0, 0).empty());
  Cache bfloats(KvFormat::kBF16, 1, 8);
  EXPECT_TRUE(run(kernels().attention_tiles[2], bfloats, {0, 2, 8, 0, 0}, {}, 0, 0).empty());
}

REDLINE_INSTANTIATE_PER_ISA(KvAppend);
REDLINE_INSTANTIATE_PER_ISA(Attention);

}  // namespace
}  // namespace redline
