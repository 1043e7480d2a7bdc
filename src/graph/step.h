// The values that change from step to step: sizes, the sequences of the batch, and the location of each sequence's
// state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/adapters.h"
#include "tensor/dim.h"
#include "tensor/kv_page.h"

namespace redline {

/// The rows of one sequence in a step: rows [row_begin, row_begin + rows), the first at `first_position`.
struct SequenceRows {
  int32_t row_begin, rows;
  int64_t first_position;
};

/// Query rows [row_begin, row_end) of one sequence for one KV head: the unit that the attention plan balances. If
/// is_group, the item holds rows of several sequences that share positions.
struct AttentionItem {
  int32_t sequence;  ///< sequence whose page table is read
  int32_t kv_head;
  int32_t row_begin, row_end;  ///< for a group: indices into AttentionWork::group_rows
  int64_t first_position;      ///< position of row_begin in its sequence; for a group: kv_end
  int64_t kv_begin = 0;        ///< first cached position read; the item covers all positions or one piece of a split
  int64_t kv_end = INT64_MAX;
  int32_t split = -1;          ///< index into AttentionWork::splits, -1 when whole; for a group: its first split
  int32_t num_splits = 1;      ///< for a group: one split per sequence, in the order of its rows
  int64_t partials = 0;        ///< offset of the piece's partial results, in floats (AttentionWork::partial_floats)
  bool is_group = false;       ///< rows of several sequences
  bool has_few_rows = false;   ///< for a group: each sequence alone is below AttentionLimits::row_threshold
  bool merges_chunks = false;  ///< the item has one partial result for all of its chunks
};

/// Rows whose positions are split among several items. The worker that finishes the last piece reduces all pieces in
/// order of position. If the sequence is in a group, the group's pieces come first.
struct AttentionSplit {
  int32_t pieces;
  int32_t row_begin, row_end;
  int64_t chunks, partials;  ///< number and offset of the partial results of these rows alone
  /// Number, offset and stride of the group's partial results, from this sequence's first query row on.
  int64_t num_shared = 0, shared = 0, shared_stride = 0;
};

/// Limits that the attention kernels of a program set for attention plans.
struct AttentionLimits {
  int partitions = 0;         ///< tasks of each attention stage: work partitions of the plan
  int64_t row_threshold = 0;  ///< query rows of one KV head from which another kernel is used; 0: there is one kernel
};

/// The attention plan of one step, made once on the host and read by every layer of a state group. Work partition s
/// owns items [partition_begin[s], partition_begin[s+1]).
struct AttentionWork {
  const AttentionItem* items = nullptr;
  const int32_t* partition_begin = nullptr;  ///< [work partitions + 1]
  const AttentionSplit* splits = nullptr;
  const int32_t* group_rows = nullptr;  ///< rows of the step, by group
  int64_t num_splits = 0;
  int64_t partial_floats = 0;  ///< memory for partial results, which the device provides for one layer at a time
};

/// One state group (graph/state.h) in one step.
struct StateStep {
  uint8_t* memory = nullptr;  ///< page p is at memory + p * page_bytes
  int64_t page_bytes = 0;
  /// [sequences]. kKeyValue: the page of every kKvPageTokens positions; entries of pages that have left the window are
  /// 0. kRecurrent: the page that the step reads, then the page that it writes.
  const int32_t* const* pages = nullptr;
  const int32_t* slots = nullptr;  ///< kKeyValue: [tokens] page * kKvPageTokens + offset of the token in its page
  AttentionWork attention;         ///< kKeyValue
  /// [sequences] number of positions that each sequence of the step has in this group, for attention that is not
  /// causal. nullptr: the step appends to the group, so that a sequence has its earlier positions and its rows of the
  /// step.
  const int64_t* lengths = nullptr;

  /// Returns the number of positions that sequence `s` of the step has in this group.
  int64_t length(size_t s, const SequenceRows& rows) const {
    return lengths != nullptr ? lengths[s] : rows.first_position + rows.rows;
  }
};

/// Change of one token's logit by bias and penalties. Adds `bias`. Then, if `repetition` is not 0, divides a positive
/// logit by it and multiplies any other by it. Then subtracts `penalty`.
struct LogitEdit {
  int32_t token;
  float bias = 0, repetition = 0, penalty = 0;
};

/// Description of how a back end samples the token after one row of logits. The result has the bits of the CPU's
/// sampler (llm/sampler.h), which creates the description.
struct SampleRow {
  enum class Kind : uint8_t {
    kHost,  ///< the back end does not sample; the host reads the logits
    kGreedy,
    kDraw,
  };
  Kind kind = Kind::kHost;
  std::vector<LogitEdit> edits;  ///< at most one edit per token
  // Parameters of kDraw, applied in this order.
  float scale = 1;    ///< 1 / temperature
  int64_t top_k = 0;  ///< 0: off
  float top_p = 1;    ///< 1: off
  float min_p = 0;    ///< 0: off
  double u = 0;       ///< the random number, in [0, 1)
};

/// The inputs of a step that change from step to step, except for the contents of its input ports.
struct StepContext {
  SymbolValues sizes;
  std::span<const SequenceRows> sequences;
  std::span<const StateStep> states;         ///< one per group of Program::states
  std::span<const AdapterSegment> adapters;  ///< adapters of the step's rows
  std::span<const SampleRow> samples;        ///< [rows of logits], for the op sample; empty: the host samples all
};

}  // namespace redline
