// The interface of kernel bodies. A kernel is a struct with
//
//   struct Args            plain data; pointers are addresses of the device
//   kLoads                 whether it has a load() that fills the ring (ring.h) with weights
//   kLoaderWaits           whether load() reads data of the step, and therefore waits for the events of the task
//   kUsesShared            optional: uses shared memory without loading
//   load(args, tile, w, ring)                 run by the loader warp
//   compute(args, tile, step, w, ring)        run by every consumer warp
//
// One body serves as a kernel of its own, with a block for each tile, and as a task of a persistent step
// (kernels.h). The values that it stores do not depend on how the rows and columns of a stage are cut, so both give
// the same bits.
#pragma once

#include <type_traits>

#include "kernels/tiles/ring.h"

namespace redline::tiles {

namespace detail {
template <class Kernel, class = void>
inline constexpr bool kDeclaresShared = false;
template <class Kernel>
inline constexpr bool kDeclaresShared<Kernel, std::void_t<decltype(Kernel::kUsesShared)>> = true;
}  // namespace detail
/// True if a launch of the kernel needs the shared memory of a block.
template <class Kernel>
inline constexpr bool kNeedsShared = Kernel::kLoads || detail::kDeclaresShared<Kernel>;

/// The part of a stage that one task computes: rows [row_begin, row_end) and columns [col_begin, col_end).
struct TileRange {
  int32_t row_begin, row_end;
  int32_t col_begin, col_end;
  int32_t index;  ///< number of the work partition, for stages that define them
};

/// An AttentionItem; graph/step.h explains the fields.
struct AttentionTask {
  int32_t sequence, kv_head;
  int32_t row_begin, row_end;
  int32_t first_position;
  int32_t kv_begin, kv_end;
  int32_t split;  ///< -1: the result is complete and written directly
  int32_t is_group, merges_chunks;
  int64_t partials;
};
/// An AttentionSplit; graph/step.h explains the fields.
struct AttentionPart {
  int32_t kv_head;
  int32_t row_begin, row_end;
  int32_t chunks, num_shared;
  int64_t partials, shared, shared_stride;
};

/// One state group in one step.
struct StateTables {
  uint8_t* memory;
  int64_t page_bytes;
  const int32_t* slots;       ///< [tokens] page * kKvPageTokens + offset in the page
  const int32_t* pages;       ///< pages of all sequences; a recurrent state has two each: read, then written
  const int32_t* page_begin;  ///< [sequences]: index of a sequence's first page
  const AttentionTask* tasks;
  const int32_t* task_begin;  ///< [work partitions + 1]
  const AttentionPart* parts;
  const int32_t* group_rows;
  float* partials;
  int32_t num_parts, num_partitions;
};

/// The rows of one sequence of a step, and the position of the first.
struct SequenceTable {
  int32_t row_begin, rows, first_position;
};

/// One adapter at one site, for rows [row_begin, row_end) of the step. `down` and `up` are packed float32.
struct AdapterPart {
  const float* down;
  const float* up;
  int32_t row_begin, row_end;
  int32_t rank, t_begin;  ///< columns of x down^T that belong to this adapter
  float scale;
  const float* bias;  ///< [out_features], or nullptr
};

/// A LogitEdit; see graph/step.h.
struct LogitEdit {
  int32_t token;
  float bias, repetition, penalty;
};
/// A SampleRow; see graph/step.h.
struct SampleTable {
  enum Kind : int32_t { kHost, kGreedy, kDraw };
  int32_t kind;
  int32_t edit_begin, edit_end;
  int32_t top_k;
  float top_p, min_p, scale;
  double u;
};

inline constexpr int kMaxRowDims = 96, kMaxStateGroups = 8;

/// The values that change from step to step, in device memory.
struct StepTables {
  int32_t rows[kMaxRowDims];  ///< value of each Program::row_dims
  int32_t num_sequences;
  const SequenceTable* sequences;
  const AdapterPart* adapter_parts;
  const int32_t* adapter_begin;  ///< [sites + 1]; nullptr: no row has an adapter
  int32_t num_partitions;
  const SampleTable* samples;  ///< [rows of logits]; nullptr: the host samples all
  const LogitEdit* edits;
  StateTables groups[kMaxStateGroups];
  /// Operands of a product that the device's library computes.
  struct {
    uint16_t* x;
    uint16_t* w;
    float* y;
  } library;
};

/// Calls f(row, columns, mask) for 32 columns at a time; the consumer warps share the tile.
template <class F>
TILE_FN void each_element(const TileRange& tile, Warp& w, F f) {
  const int chunks = (tile.col_end - tile.col_begin + kWarpLanes - 1) / kWarpLanes;
  const int all = (tile.row_end - tile.row_begin) * chunks;
  for (int i = w.index(); i < all; i += kConsumerWarps) {
    const Lanes<int> col = w.lane() + (tile.col_begin + i % chunks * kWarpLanes);
    f(tile.row_begin + i / chunks, col, col < Lanes<int>(tile.col_end));
  }
}

}  // namespace redline::tiles
