// Writes rows of K and V of one head into KV pages, in tile order, rounded to nearest even where the cache is narrower
// than float32.
//
// Rows are first rounded into a dense buffer. An aligned run of consecutive tokens (16, or a whole page of bfloat16) is
// then transposed in 32-bit words; a single token is written element by element.
#include "kernels/cpu/attention/attention_page.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr int64_t kBlock = kKvBlockTokens;

/// Consecutive tokens that are written together, aligned to this number.
template <class Element>
constexpr int64_t kRun = kBlock;
template <>
constexpr int64_t kRun<BF16> = kKvPageTokens;

/// Rows of one run, rounded; head_dim padded to whole pairs.
template <class Element>
struct Rows {
  alignas(64) Element k[kRun<Element> * kMaxHeadDim];
  alignas(64) Element v[kRun<Element> * kMaxHeadDim];
};

template <class Element>
REDLINE_INLINE void round_row(const float* x, int64_t head_dim, Element* out) {
  if (head_dim % 2 != 0) out[head_dim] = Element{};
  for_lanes(head_dim, [&](int64_t d, auto lanes) { store(out + d, load(x + d, lanes), lanes); });
}

template <class Element>
void write_token(const Rows<Element>& rows, int64_t row, int64_t token, int64_t head_dim, Element* k, Element* v) {
  const int64_t width = even(head_dim);
  const Element* source = rows.k + row * width;
  Element* key = k + key_place<Element>(token, 0, head_dim);
  for (int64_t d = 0; d < width; d += 2) {
    key[d * kBlock] = source[d];
    key[d * kBlock + 1] = source[d + 1];
  }
  source = rows.v + row * width;
  Element* value = v + value_place<Element>(token, 0, head_dim);
  for (int64_t d = 0; d < head_dim; ++d) value[2 * d] = source[d];
}

void write_token(const Rows<BF16>& rows, int64_t row, int64_t token, int64_t head_dim, BF16* k, BF16* v) {
  const int64_t width = even(head_dim);
  for (int64_t d = 0; d < width; ++d) k[key_place<BF16>(token, d, head_dim)] = rows.k[row * width + d];
  for (int64_t d = 0; d < head_dim; ++d) v[value_place<BF16>(token, d, head_dim)] = rows.v[row * width + d];
}

/// Writes tokens [token, token + 16) of a page.
template <class Element>
void write_run(const Rows<Element>& rows, int64_t token, int64_t head_dim, Element* k, Element* v) {
  const int64_t width = even(head_dim);
  Element* keys = k + key_place<Element>(token, 0, head_dim);
  int64_t pair = 0;
  if constexpr (sizeof(Element) == 2) {  // a pair is one word
    const auto* source = reinterpret_cast<const float*>(rows.k);
    auto* target = reinterpret_cast<float*>(keys);
    for (; pair + kWidth <= width / 2; pair += kWidth) {
      for (int64_t t = 0; t < kBlock; t += kWidth) {
        VecF32 words[kWidth];
        for (int i = 0; i < kWidth; ++i) words[i] = load(source + (t + i) * (width / 2) + pair, Full{});
        transpose(words);
        for (int i = 0; i < kWidth; ++i) store(target + (pair + i) * kBlock + t, words[i], Full{});
      }
    }
  }
  for (; pair < width / 2; ++pair)
    for (int64_t t = 0; t < kBlock; ++t)
      for (int64_t i = 0; i < 2; ++i) keys[(pair * kBlock + t) * 2 + i] = rows.k[t * width + 2 * pair + i];
  for (int64_t t = 0; t < kBlock; t += 2) {
    const Element* first = rows.v + t * width;
    Element* values = v + value_place<Element>(token + t, 0, head_dim);
    for (int64_t d = 0; d < head_dim; ++d) {
      values[2 * d] = first[d];
      values[2 * d + 1] = first[width + d];
    }
  }
}

/// Writes a whole page: keys 64 bytes at a time, pairs of tokens of V as words.
void write_run(const Rows<BF16>& rows, int64_t, int64_t head_dim, BF16* k, BF16* v) {
  const int64_t width = even(head_dim), pairs = kKvPageTokens / 2;
  for (int64_t token = 0; token < kKvPageTokens; ++token) {
    for (int64_t step = 0; step < width; step += kKeyStep) {
      const BF16* from = rows.k + token * width + step;
      BF16* to = k + key_place<BF16>(token, step, head_dim);
      if (step + kKeyStep <= width) __builtin_memcpy(to, from, kKeyStep * sizeof(BF16));
      else __builtin_memcpy(to, from, static_cast<size_t>(width - step) * sizeof(BF16));
    }
  }
  auto* words = reinterpret_cast<float*>(v);
  int64_t d = 0;
  for (; d + kWidth <= head_dim; d += kWidth) {
    for (int64_t pair = 0; pair < pairs; pair += kWidth) {
      VecF32 block[kWidth];
      for (int i = 0; i < kWidth; ++i) {
        const BF16* first = rows.v + 2 * (pair + i) * width + d;
        // A bfloat16 is the upper half of the same float32 value.
        block[i] = bits_f32(shr<16>(bits_i32(load(first, Full{}))) | bits_i32(load(first + width, Full{})));
      }
      transpose(block);
      for (int i = 0; i < kWidth; ++i) store(words + (d + i) * pairs + pair, block[i], Full{});
    }
  }
  for (; d < head_dim; ++d)
    for (int64_t token = 0; token < kKvPageTokens; ++token)
      v[value_place<BF16>(token, d, head_dim)] = rows.v[token * width + d];
}

template <class Element>
void kv_append(const KvAppendArgs& a) {
  Rows<Element> rows;
  const int64_t width = even(a.head_dim);
  for (int64_t row = 0; row < a.rows;) {
    const int64_t slot = a.slots[row];
    int64_t run = 1;  // rows of a full run
    if (slot >= 0 && slot % kRun<Element> == 0)
      while (run < kRun<Element> && row + run < a.rows && a.slots[row + run] == slot + run) ++run;
    if (run < kRun<Element>) run = 1;
    if (slot >= 0) {
      for (int64_t i = 0; i < run; ++i) {
        round_row(a.k + (row + i) * a.row_stride, a.head_dim, rows.k + i * width);
        round_row(a.v + (row + i) * a.row_stride, a.head_dim, rows.v + i * width);
      }
      const int64_t page = slot / kKvPageTokens * a.cache.page_stride, token = slot % kKvPageTokens;
      Element* k = static_cast<Element*>(a.cache.k) + page;
      Element* v = static_cast<Element*>(a.cache.v) + page;
      if (run == kRun<Element>) write_run(rows, token, a.head_dim, k, v);
      else write_token(rows, 0, token, a.head_dim, k, v);
    }
    row += run;
  }
}

}  // namespace

void fill_kv_append(CpuKernels& table) {
  table.kv_append[static_cast<int>(KvFormat::kF32)] = kv_append<float>;
  table.kv_append[static_cast<int>(KvFormat::kF16)] = kv_append<F16>;
  table.kv_append[static_cast<int>(KvFormat::kBF16)] = kv_append<BF16>;
}

}  // namespace redline::REDLINE_ISA_NS
