// Pages of cached keys and values: their size, formats and order of elements.
#pragma once

#include <cstdint>

namespace redline {

/// Formats in which the cache holds keys and values.
enum class KvFormat : uint8_t { kF32, kF16, kBF16 };
inline constexpr int kNumKvFormats = 3;

/// Tokens of one page of the cache, and of the blocks in which a page holds keys.
inline constexpr int64_t kKvPageTokens = 32;
inline constexpr int64_t kKvBlockTokens = 16;
/// Attention sums up these many positions at a time, from multiples of it, and adds the results in order of position:
/// so workers may share the positions of one head and the bits stay the same (but for kBF16; see AttentionMergeArgs).
inline constexpr int64_t kKvChunk = 256;

/// Elements of a head in a page: head_dim rounded up to a pair.
constexpr int64_t kv_head_width(int64_t head_dim) { return (head_dim + 1) / 2 * 2; }

/// One KV head of a paged cache as a kernel sees it. Page p of K is at k + p * page_stride, counted in elements, and in
/// tile order, D = head_dim rounded up to 2: right operands of q . k and weights . v, or, of kBF16, left ones.
///   K  [2 blocks][D / 2][16 tokens][2 of head_dim]   or  [2 blocks][D / 32][16 tokens][32 or the rest of D]
///   V  [16 pairs of tokens][D][2 tokens]             or  [D][32 tokens]
/// Where head_dim is odd, K has zeros in the last place. Other places that no token wrote hold anything.
struct KvHeadView {
  void* k;
  void* v;
  int64_t page_stride;
};

/// One line of partials: sums over the chunk's positions [head_dim up to 16], then the largest score, the sum of
/// weights.
[[gnu::always_inline]] inline constexpr int64_t attention_partial_floats(int64_t head_dim) {
  return (head_dim + 15) / 16 * 16 + 16;
}

}  // namespace redline
