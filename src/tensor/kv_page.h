// KV cache pages: size, formats and element order.
#pragma once

#include <cstdint>

namespace redline {

/// Storage formats of the KV cache.
enum class KvFormat : uint8_t { kF32, kF16, kBF16 };
inline constexpr int kNumKvFormats = 3;
constexpr int64_t kv_element_bytes(KvFormat format) { return format == KvFormat::kF32 ? 4 : 2; }

/// Number of tokens per KV page, and per block of keys within a page.
inline constexpr int64_t kKvPageTokens = 32;
inline constexpr int64_t kv_pages_for(int64_t tokens) { return (tokens + kKvPageTokens - 1) / kKvPageTokens; }
inline constexpr int64_t kKvBlockTokens = 16;
/// Chunk of positions, aligned to multiples of it, over which attention accumulates. Partial results of chunks are
/// merged in order of position: workers can split the positions of a head and the bits stay the same (except for tile
/// products of kBF16; see AttentionMergeArgs).
inline constexpr int64_t kKvChunk = 256;

/// Returns the elements of a head in a page: head_dim rounded up to even.
constexpr int64_t kv_head_width(int64_t head_dim) { return (head_dim + 1) / 2 * 2; }

/// One KV head of the paged cache as CPU kernels read it. Page p of K is at k + p * page_stride elements. The element
/// order of a page depends on the format; D is head_dim rounded up to even:
///      kF32 and kF16                                    kBF16
///   K  [2 blocks][D / 2][16 tokens][2 of head_dim]      [2 blocks][D / 32][16 tokens][32 or the rest of D]
///   V  [16 pairs of tokens][D][2 tokens]                [D][32 tokens]
/// K and V are the right operands of q . k and weights . v in the left column. In the right column they are the left
/// operands of the transposed products, k . q and v . weights, which tile units compute.
/// If head_dim is odd, the last element of K is zero. Positions without a token are otherwise undefined.
struct KvHeadView {
  void* k;
  void* v;
  int64_t page_stride;
};

/// Returns the floats of one row of partial results: sums over the chunk's positions [head_dim rounded up to 16], the
/// largest score, the sum of weights.
[[gnu::always_inline]] inline constexpr int64_t attention_partial_floats(int64_t head_dim) {
  return (head_dim + 15) / 16 * 16 + 16;
}

}  // namespace redline
