// Rows of K and V of one head into cache pages in tile order, rounded to nearest even where the cache is narrower than
// float32.
//
// Rows first become dense elements in a buffer. A block of 16 tokens in order is then transposed 32-bit word by word; a
// single token writes its pairs of K and its halves of V one by one.
#include "kernels/cpu/attention_page.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr int64_t kMaxHeadDim = 512;
constexpr int64_t kBlock = kKvBlockTokens;

/// Rows of one block, rounded; head_dim in whole pairs.
template <class Element>
struct Rows {
  alignas(64) Element k[kBlock * kMaxHeadDim];
  alignas(64) Element v[kBlock * kMaxHeadDim];
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
  Element* key = k + key_place(token, 0, head_dim);
  for (int64_t d = 0; d < width; d += 2) {
    key[d * kBlock] = source[d];
    key[d * kBlock + 1] = source[d + 1];
  }
  source = rows.v + row * width;
  Element* value = v + value_place(token, 0, head_dim);
  for (int64_t d = 0; d < head_dim; ++d) value[2 * d] = source[d];
}

/// Tokens [token, token + 16) of a page.
template <class Element>
void write_block(const Rows<Element>& rows, int64_t token, int64_t head_dim, Element* k, Element* v) {
  const int64_t width = even(head_dim);
  Element* keys = k + key_place(token, 0, head_dim);
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
    Element* values = v + value_place(token + t, 0, head_dim);
    for (int64_t d = 0; d < head_dim; ++d) {
      values[2 * d] = first[d];
      values[2 * d + 1] = first[width + d];
    }
  }
}

template <class Element>
void kv_append(const KvAppendArgs& a) {
  Rows<Element> rows;
  const int64_t width = even(a.head_dim);
  for (int64_t row = 0; row < a.rows;) {
    const int64_t slot = a.slots[row];
    int64_t run = 1;  // rows that fill a block in order
    if (slot >= 0 && slot % kBlock == 0)
      while (run < kBlock && row + run < a.rows && a.slots[row + run] == slot + run) ++run;
    if (run < kBlock) run = 1;
    if (slot >= 0) {
      for (int64_t i = 0; i < run; ++i) {
        round_row(a.k + (row + i) * a.row_stride, a.head_dim, rows.k + i * width);
        round_row(a.v + (row + i) * a.row_stride, a.head_dim, rows.v + i * width);
      }
      const int64_t page = slot / kKvPageTokens * a.cache.page_stride, token = slot % kKvPageTokens;
      Element* k = static_cast<Element*>(a.cache.k) + page;
      Element* v = static_cast<Element*>(a.cache.v) + page;
      if (run == kBlock) write_block(rows, token, a.head_dim, k, v);
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
