// Arguments of attention over a paged KV cache.
#pragma once

#include <cstdint>

#include "tensor/kv_page.h"

namespace redline {

/// A mask over the range of positions that rows see by their own position, as lists of blocks of
/// kKvPageTokens positions with a bit per position. Row r has the entries [ranges[2 r], ranges[2 r + 1]). Rows may
/// share entries.
struct AttentionMaskView {
  const int32_t* ranges = nullptr;  ///< [rows][2]; nullptr: there is no mask
  const int32_t* blocks = nullptr;  ///< entry i is positions [32 blocks[i], 32 blocks[i] + 32); ascending within a row
  const int32_t* bits = nullptr;  ///< bit j of entry i: position 32 blocks[i] + j is visible; nullptr: all bits are set
};

/// Arguments of softmax attention of query rows of one sequence over its paged KV cache, for the group of query heads
/// that share one KV head:
///   y[r, g] = sum_p softmax_p(cap(scale * q[r, g] . k[p]) + slopes[g] (p - position(r))) v[p], over the visible p
///   position(r) = first_position + r
///   cap(s) = soft_cap tanh(s / soft_cap), or s where soft_cap is 0; e^sinks[g] is added to the softmax's divisor.
/// Position p is visible if each of these holds:
///   p <= position(r); without is_causal: p < kv_length
///   p > position(r) - window, unless window is 0
///   p >= position(r) / chunk * chunk, unless chunk is 0
///   the mask has its bit, if there is a mask
/// A row that sees nothing is zero. Keys and values outside of the range of the first three conditions may be anything;
/// values that only the mask hides must be finite.
///
/// Online softmax in one pass over KV (Milakov and Gimelshein 2018; FlashAttention), in float32.
///
/// Only positions in [kv_begin, kv_end) are read; kv_begin is a multiple of kKvChunk. With `partials` the result of
/// each chunk and query row (row, head of the group) is stored there for attention_merge, y is not written, and kv_end
/// must be a multiple of kKvChunk too.
///
/// A call may have rows of several sequences that share these pages: `row_places` then gives the place of each row, and
/// first_position is at least kv_end, so that every row attends to all positions. Such a call has no chunk, slopes or
/// mask, and does not use attention_tiles of kBF16 pages. Only attention_vectors reads slopes and mask.
struct AttentionArgs {
  const float* q;  ///< row r, head g: q + r * q_stride + g * head_dim
  int64_t q_stride;
  float* y;  ///< layout of q
  int64_t y_stride;
  int64_t rows, group, head_dim;
  int64_t first_position;
  int64_t window;
  float scale;
  const int32_t* pages;  ///< page of position p: pages[p / kKvPageTokens]
  KvHeadView cache;
  int64_t kv_begin, kv_end;  ///< kv_end may exceed the last position
  float* partials;           ///< [chunks from kv_begin][rows * group][attention_partial_floats(head_dim)] or nullptr
  void* scratch;
  /// True if kv_begin is the first position that the rows attend to: `partials` then takes one merged result of all
  /// chunks.
  bool merges_chunks = false;
  /// Row r of q is at q + row_places[r] * q_stride; nullptr: at q + r * q_stride. Requires `partials`.
  const int32_t* row_places = nullptr;
  float soft_cap = 0;
  const float* sinks = nullptr;  ///< [group] or nullptr; partials do not contain them
  int64_t chunk = 0;
  bool is_causal = true;
  int64_t kv_length = 0;
  const float* slopes = nullptr;  ///< [group] or nullptr
  AttentionMaskView mask;
};
/// Arguments of attention_merge, which merges the partials of all chunks into y, in order of position: first the shared
/// ones, then the rows' own. The bits are those of a single call over all positions.
/// (For attention_tiles of kBF16 pages, where a single call keeps sums in tiles from chunk to chunk, they agree within
/// the rounding of these sums.)
struct AttentionMergeArgs {
  const float* partials;  ///< [chunks][rows * group][attention_partial_floats(head_dim)]
  int64_t chunks, rows, group, head_dim;
  float* y;  ///< layout as in AttentionArgs
  int64_t y_stride;
  /// Partials that were computed together with other sequences (AttentionArgs::row_places), from the first query row of
  /// this call on: [num_shared], shared_stride floats apart. The first one may be the result of many chunks
  /// (AttentionArgs::merges_chunks).
  const float* shared = nullptr;
  int64_t num_shared = 0, shared_stride = 0;
  const float* sinks = nullptr;  ///< as in AttentionArgs
};

}  // namespace redline
