// All kernels, and the two ways to run them: a block for each tile of one stage, or a block for each list of tasks of a
// whole program (a persistent step).
#pragma once

#include "kernels/tiles/adapters.h"
#include "kernels/tiles/attention.h"
#include "kernels/tiles/elementwise.h"
#include "kernels/tiles/linear.h"
#include "kernels/tiles/moe.h"
#include "kernels/tiles/norm.h"
#include "kernels/tiles/recurrence.h"
#include "kernels/tiles/rope.h"
#include "kernels/tiles/rows.h"

namespace redline::tiles {

#define REDLINE_TILE_KERNELS(K) \
  K(AdapterDown)                \
  K(AdapterUp)                  \
  K(Attention)                  \
  K(AttentionMerge)             \
  K(CausalConv)                 \
  K(GatedNorm)                  \
  K(GatedScan)                  \
  K(Elementwise)                \
  K(Embedding)                  \
  K(ExpertLinear)               \
  K(ExpertLinearF32)            \
  K(ExpertSum)                  \
  K(MoeRouter)                  \
  K(Concat)                     \
  K(GatherRows)                 \
  K(KvAppend)                   \
  K(Linear) K(LinearF32) K(Norm) K(Rope) K(RopeTable)

enum class KernelId : uint16_t {
#define REDLINE_KERNEL(K) k##K,
  REDLINE_TILE_KERNELS(REDLINE_KERNEL)
#undef REDLINE_KERNEL
};

/// One stage of a program as the device knows it.
struct StageTable {
  KernelId kernel;
  int16_t row_dim;    ///< of StepTables::rows; -1: work partitions
  int32_t row_parts;  ///< of a persistent step
  int32_t row_tile;   ///< rows of a tile of a launch
  int32_t cols, col_tile, col_tiles;
  int32_t args;  ///< offset of the kernel's Args
};

/// Rows [rows * i / n, rows * (i + 1) / n), as TaskGrid cuts them, or [i * row_tile, ...) in a launch.
TILE_FN TileRange tile_of(const StageTable& stage, int32_t index, const StepTables& step, bool is_launch) {
  const int32_t part = index / stage.col_tiles, col = index % stage.col_tiles * stage.col_tile;
  const int32_t col_end = col + stage.col_tile < stage.cols ? col + stage.col_tile : stage.cols;
  if (stage.row_dim < 0) return {part, part + 1, col, col_end, index};
  const int32_t rows = step.rows[stage.row_dim];
  if (is_launch) {
    const int32_t begin = part * stage.row_tile, end = begin + stage.row_tile;
    return {begin, end < rows ? end : rows, col, col_end, index};
  }
  return {static_cast<int32_t>(int64_t{rows} * part / stage.row_parts),
          static_cast<int32_t>(int64_t{rows} * (part + 1) / stage.row_parts), col, col_end, index};
}

TILE_FN void load_tile(const StageTable& stage, const uint8_t* constants, const TileRange& tile, Warp& w,
                       RingPosition& ring) {
  switch (stage.kernel) {
#define REDLINE_KERNEL(K) \
  case KernelId::k##K: return K::load(*reinterpret_cast<const K::Args*>(constants + stage.args), tile, w, ring);
    REDLINE_TILE_KERNELS(REDLINE_KERNEL)
#undef REDLINE_KERNEL
  }
}
TILE_FN void compute_tile(const StageTable& stage, const uint8_t* constants, const TileRange& tile,
                          const StepTables& step, Warp& w, RingPosition& ring) {
  switch (stage.kernel) {
#define REDLINE_KERNEL(K) \
  case KernelId::k##K:    \
    return K::compute(*reinterpret_cast<const K::Args*>(constants + stage.args), tile, step, w, ring);
    REDLINE_TILE_KERNELS(REDLINE_KERNEL)
#undef REDLINE_KERNEL
  }
}

/// A program in the memory of the device.
struct ProgramTables {
  const StageTable* stages;
  const uint8_t* constants;
  const StepTables* step;
  // Of a persistent step: the task lists of the program (graph/program.h), one for each block.
  struct TaskEntry {
    uint32_t stage, index, wait_begin, wait_end, notify_begin, notify_end;
  };
  struct WaitEntry {
    uint32_t event, count;
  };
  const TaskEntry* tasks;
  const uint32_t* list_begin;  ///< [blocks + 1]
  const WaitEntry* waits;
  const uint32_t* notifies;
  uint64_t* counters;  ///< kCounterStride apart
  uint64_t epoch;      ///< number of this step, from 1: a wait is counter >= count * epoch
};
/// A counter has a line of its own.
inline constexpr int kCounterStride = 16;

/// The warp's part of tile `block` of a stage.
TILE_FN void run_launch(const StageTable& stage, const ProgramTables& p, int block, Warp& w) {
  const TileRange tile = tile_of(stage, block, *p.step, true);
  RingPosition ring;
  if (w.index() == kConsumerWarps) load_tile(stage, p.constants, tile, w, ring);
  else compute_tile(stage, p.constants, tile, *p.step, w, ring);
}

TILE_FN bool loader_waits(KernelId kernel) {
  switch (kernel) {
#define REDLINE_KERNEL(K) \
  case KernelId::k##K: return K::kLoaderWaits;
    REDLINE_TILE_KERNELS(REDLINE_KERNEL)
#undef REDLINE_KERNEL
  }
  return false;
}

TILE_FN void wait_for_events(const ProgramTables& p, const ProgramTables::TaskEntry& task, Warp& w) {
  for (uint32_t wait = task.wait_begin; wait < task.wait_end; ++wait)
    w.event_wait(p.counters + uint64_t{p.waits[wait].event} * kCounterStride, p.waits[wait].count * p.epoch);
}

/// The warp's part of one persistent step. The loader goes through the list by itself: weights depend on no event, so
/// the ring fills with those of the next tasks while the consumers compute or wait.
TILE_FN void run_persistent(const ProgramTables& p, int block, Warp& w) {
  RingPosition ring;
  const bool is_loader = w.index() == kConsumerWarps;
  for (uint32_t i = p.list_begin[block]; i < p.list_begin[block + 1]; ++i) {
    const ProgramTables::TaskEntry& task = p.tasks[i];
    const StageTable& stage = p.stages[task.stage];
    const TileRange tile = tile_of(stage, static_cast<int32_t>(task.index), *p.step, false);
    if (is_loader) {
      if (loader_waits(stage.kernel)) wait_for_events(p, task, w);
      load_tile(stage, p.constants, tile, w, ring);
      continue;
    }
    if (w.index() == 0) wait_for_events(p, task, w);
    w.consumer_sync();
    compute_tile(stage, p.constants, tile, *p.step, w, ring);
    w.consumer_sync();
    if (w.index() == 0)
      for (uint32_t n = task.notify_begin; n < task.notify_end; ++n)
        w.event_release(p.counters + uint64_t{p.notifies[n]} * kCounterStride);
  }
}

}  // namespace redline::tiles
