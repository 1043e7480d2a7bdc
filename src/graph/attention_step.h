// The sequences and cached keys and values of one step, as attention tasks read them.
#pragma once

#include <atomic>
#include <cstdint>

#include "tensor/kv_page.h"

namespace redline {

/// Query rows [row_begin, row_end) of one sequence for one KV head: the unit that the attention plan balances.
struct AttentionItem {
  int32_t sequence;
  int32_t kv_head;
  int32_t row_begin, row_end;
  int64_t first_position;  ///< position of row_begin in its sequence
  int64_t kv_begin = 0;    ///< first cached position read; the item covers all positions or one piece of a split
  int64_t kv_end = INT64_MAX;
  int32_t split = -1;    ///< index into AttentionStep::splits, -1 when whole
  int64_t partials = 0;  ///< offset of the piece's partial results in AttentionStep::partials
};

/// An item whose positions are split among workers. The worker that finishes the last piece reduces all pieces in order
/// of position.
struct AttentionSplit {
  int32_t pieces;
  int64_t chunks;
  int64_t partials;  ///< of the first piece
};

/// Addresses of keys and values: one view per (layer, KV head), all with the same page numbers.
struct KvCacheView {
  KvFormat format = KvFormat::kF32;  ///< the format that the program was compiled for
  int64_t num_kv_heads = 0;
  const KvHeadView* heads = nullptr;  ///< [layers, kv heads]

  const KvHeadView& head(int64_t layer, int64_t kv_head) const { return heads[layer * num_kv_heads + kv_head]; }
};

/// The attention plan of one step, made once on the host and read by every layer. Work partition s owns items
/// [slot_begin[s], slot_begin[s+1]).
struct AttentionStep {
  KvCacheView cache;
  const AttentionItem* items = nullptr;
  const int32_t* slot_begin = nullptr;    ///< [attention slots + 1]
  const int32_t* const* pages = nullptr;  ///< [sequences] page numbers in order of position
  const AttentionSplit* splits = nullptr;
  std::atomic<int32_t>* finished = nullptr;  ///< [splits] finished pieces; reset to zero by the last one
  float* partials = nullptr;                 ///< for one layer at a time
};

}  // namespace redline
