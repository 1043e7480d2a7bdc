// All kernels, and the two ways to run them: a block for each tile of one stage, or a block for each list of tasks of a
// whole program (a persistent step).
#pragma once

#include "kernels/tiles/adapters.h"
#include "kernels/tiles/attention.h"
#include "kernels/tiles/attention_f16.h"
#include "kernels/tiles/conv2d.h"
#include "kernels/tiles/elementwise.h"
#include "kernels/tiles/group_norm.h"
#include "kernels/tiles/joint_attention.h"
#include "kernels/tiles/library_product.h"
#include "kernels/tiles/linear.h"
#include "kernels/tiles/modulate.h"
#include "kernels/tiles/moe.h"
#include "kernels/tiles/norm.h"
#include "kernels/tiles/recurrence.h"
#include "kernels/tiles/rope.h"
#include "kernels/tiles/rows.h"
#include "kernels/tiles/sample.h"
#include "kernels/tiles/state.h"
#include "kernels/tiles/wide_linear.h"

namespace redline::tiles {

/// Kernels of language models, which also run as tasks of a persistent step, since it has few rows. Products take
/// longest to compile.
#define REDLINE_TILE_TASK_PRODUCTS(K) \
  K(ExpertLinear)                     \
  K(ExpertLinearF32)                  \
  K(Linear)                           \
  K(LinearF32)
#define REDLINE_TILE_TASK_OTHERS(K) \
  K(AdapterDown)                    \
  K(AdapterUp)                      \
  K(Attention)                      \
  K(AttentionF16)                   \
  K(AttentionMerge)                 \
  K(CausalConv)                     \
  K(Concat)                         \
  K(EditLogits)                     \
  K(Elementwise)                    \
  K(Embedding)                      \
  K(ExpertSum)                      \
  K(GatedNorm)                      \
  K(GatedScan)                      \
  K(GatherColumns)                  \
  K(GatherRows)                     \
  K(KvAppend)                       \
  K(MoeRouter)                      \
  K(Norm)                           \
  K(PlaceRows)                      \
  K(Rope)                           \
  K(RopeTable)                      \
  K(Sample)
#define REDLINE_TILE_TASKS(K) REDLINE_TILE_TASK_PRODUCTS(K) REDLINE_TILE_TASK_OTHERS(K)
/// Kernels of image networks and encoders, and others that run only as launches.
#define REDLINE_TILE_IMAGE_PRODUCTS(K) \
  K(Conv2d)                            \
  K(Conv2dF32)
#define REDLINE_TILE_IMAGE_OTHERS(K) \
  K(ConcatRows)                      \
  K(ConvAdapterDown)                 \
  K(FinishRows)                      \
  K(GroupNormScale)                  \
  K(GroupNormSums)                   \
  K(JointAttention)                  \
  K(JointAttentionBf16)              \
  K(Lstm)                            \
  K(Modulate)                        \
  K(PackKv)                          \
  K(RoundRows)                       \
  K(Squares)                         \
  K(StateMeasure)                    \
  K(StateSum)                        \
  K(TimestepEmbedding)               \
  K(UnpackWeight)
/// Kernels for many rows on devices with warp groups.
#define REDLINE_TILE_WIDE_PRODUCTS(K) \
  K(WideConv2d)                       \
  K(WideLinear)
#define REDLINE_TILE_PRODUCTS(K) \
  REDLINE_TILE_TASK_PRODUCTS(K) REDLINE_TILE_IMAGE_PRODUCTS(K) REDLINE_TILE_WIDE_PRODUCTS(K)
#define REDLINE_TILE_OTHERS(K) REDLINE_TILE_TASK_OTHERS(K) REDLINE_TILE_IMAGE_OTHERS(K)
#define REDLINE_TILE_KERNELS(K) REDLINE_TILE_PRODUCTS(K) REDLINE_TILE_OTHERS(K)

enum class KernelId : uint16_t {
#define REDLINE_KERNEL(K) k##K,
  REDLINE_TILE_KERNELS(REDLINE_KERNEL)
#undef REDLINE_KERNEL
};

/// Returns true if the persistent step of a GPU has the kernel.
TILE_CONST_FN bool is_task(KernelId kernel) {
  switch (kernel) {
#define REDLINE_KERNEL(K) case KernelId::k##K:
    REDLINE_TILE_TASKS(REDLINE_KERNEL)
#undef REDLINE_KERNEL
    return true;
    default: return false;
  }
}

/// Returns the kernel that a launch for more than kFewRows rows runs instead on a device with warp groups, with the
/// same arguments and grid. With fewer rows most of a group's product would be unused.
inline constexpr int kFewRows = 32;
TILE_CONST_FN KernelId wide_kernel(KernelId kernel) {
  if (kernel == KernelId::kLinear) return KernelId::kWideLinear;
  if (kernel == KernelId::kConv2d) return KernelId::kWideConv2d;
  return kernel;
}

/// One stage of a program in device memory.
struct StageTable {
  KernelId kernel;
  int16_t row_dim;    ///< index in StepTables::rows; -1: work partitions
  int32_t row_parts;  ///< row parts in a persistent step
  int32_t row_tile;   ///< rows per tile in a launch
  int32_t cols, col_tile, col_tiles;
  int32_t args;  ///< offset of the kernel's Args
  /// If `tickets` is not 0, a persistent step has a task of the stage in every list, and idle blocks draw the tiles
  /// from a counter. ticket_counter is the counter's index.
  int32_t tickets, ticket_counter;
};

/// Returns rows [rows * i / n, rows * (i + 1) / n), as TaskGrid cuts them, or [i * row_tile, ...) in a launch.
TILE_FN TileRange tile_of(const StageTable& stage, int32_t index, const StepTables& step, bool is_launch) {
  const int32_t part = index / stage.col_tiles, col = index % stage.col_tiles * stage.col_tile;
  const int32_t col_end = col + stage.col_tile < stage.cols ? col + stage.col_tile : stage.cols;
  if (stage.row_dim < 0) return {part, part + 1, col, col_end, index};
  const int32_t rows = step.rows[stage.row_dim];
  if (is_launch) {
    const int32_t begin = part * stage.row_tile, end = begin + stage.row_tile;
    if (begin >= rows) return {rows, rows, col, col_end, index};  // a launch for more rows than the step has
    return {begin, end < rows ? end : rows, col, col_end, index};
  }
  return {static_cast<int32_t>(int64_t{rows} * part / stage.row_parts),
          static_cast<int32_t>(int64_t{rows} * (part + 1) / stage.row_parts), col, col_end, index};
}

/// The kernels that a persistent step can run. On the emulated device these are all kernels, because tests run them as
/// tasks too.
#ifdef __CUDACC__
#define REDLINE_TILE_SWITCH REDLINE_TILE_TASKS
#else
#define REDLINE_TILE_SWITCH REDLINE_TILE_KERNELS
#endif

/// Returns the kernel whose task form also contains the code of this one.
TILE_CONST_FN KernelId task_kernel(KernelId kernel) {
  if (kernel == KernelId::kExpertLinear) return KernelId::kLinear;
  if (kernel == KernelId::kExpertLinearF32) return KernelId::kLinearF32;
  return kernel;
}

template <class Kernel, bool kPersistent>
using FormOf = std::conditional_t<kPersistent, typename TaskForm<Kernel>::Type, Kernel>;

template <class Kernel>
TILE_FN void load_of(const StageTable& stage, const uint8_t* constants, const TileRange& tile, Warp& w,
                     RingPosition& ring) {
  if constexpr (Kernel::kLoads) {
    w.begin_task();
    Kernel::load(*reinterpret_cast<const typename Kernel::Args*>(constants + stage.args), tile, w, ring);
  }
}
template <class Kernel>
TILE_FN void compute_of(const StageTable& stage, const uint8_t* constants, const TileRange& tile,
                        const StepTables& step, Warp& w, RingPosition& ring) {
  w.begin_task();
  Kernel::compute(*reinterpret_cast<const typename Kernel::Args*>(constants + stage.args), tile, step, w, ring);
}
/// Loads the weights of a tile. `kPersistent`: as a task of a persistent step.
template <bool kPersistent>
TILE_FN void load_tile(const StageTable& stage, const uint8_t* constants, const TileRange& tile, Warp& w,
                       RingPosition& ring) {
  switch (kPersistent ? task_kernel(stage.kernel) : stage.kernel) {
#define REDLINE_KERNEL(K)                                                        \
  case KernelId::k##K:                                                           \
    if constexpr (!kPersistent || task_kernel(KernelId::k##K) == KernelId::k##K) \
      load_of<FormOf<K, kPersistent>>(stage, constants, tile, w, ring);          \
    break;
    REDLINE_TILE_SWITCH(REDLINE_KERNEL)
#undef REDLINE_KERNEL
    default: break;
  }
}
template <bool kPersistent>
TILE_FN void compute_tile(const StageTable& stage, const uint8_t* constants, const TileRange& tile,
                          const StepTables& step, Warp& w, RingPosition& ring) {
  switch (kPersistent ? task_kernel(stage.kernel) : stage.kernel) {
#define REDLINE_KERNEL(K)                                                        \
  case KernelId::k##K:                                                           \
    if constexpr (!kPersistent || task_kernel(KernelId::k##K) == KernelId::k##K) \
      compute_of<FormOf<K, kPersistent>>(stage, constants, tile, step, w, ring); \
    break;
    REDLINE_TILE_SWITCH(REDLINE_KERNEL)
#undef REDLINE_KERNEL
    default: break;
  }
}

/// Times of a task of a persistent step: begin of its wait, begin, and end, by the device's clock in nanoseconds.
struct TaskTimes {
  uint64_t wait, begin, end;
};
/// Times of the launches of a stage. Each is the maximum over their warps, so the begin is stored complemented; 0: no
/// launch.
struct StageTimes {
  uint64_t not_begin, end;
};

/// A program in the memory of the device.
struct ProgramTables {
  const StageTable* stages;
  const uint8_t* constants;
  const StepTables* step;
  // Tables of persistent steps only: the task lists of the program (graph/program.h), one for each block.
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
  uint64_t* counters;  ///< counters, kCounterStride apart
  uint64_t epoch;      ///< number of this step, from 1: a wait is counter >= count * epoch
  uint32_t num_lists;
  HangReport* hang;
  uint64_t deadline_ns;  ///< time limit of each wait
  // Buffers of a trace; nullptr: no trace.
  TaskTimes* task_times;    ///< parallel to tasks
  StageTimes* stage_times;  ///< parallel to stages
};
/// Distance of counters, so that each has a cache line of its own.
inline constexpr int kCounterStride = 16;

/// Records that a consumer warp begins its part of a launch; trace_end() records the end.
TILE_FN void trace_begin(const ProgramTables& p, int32_t stage, Warp& w) {
  if (p.stage_times != nullptr && w.index() == 0) w.raise(&p.stage_times[stage].not_begin, ~w.now());
}
TILE_FN void trace_end(const ProgramTables& p, int32_t stage, Warp& w) {
  if (p.stage_times != nullptr) w.raise(&p.stage_times[stage].end, w.now());
}

/// Runs the warp's part of tile `block` of stage `number`.
TILE_FN void run_launch(const StageTable& stage, int32_t number, const ProgramTables& p, int block, Warp& w) {
  const TileRange tile = tile_of(stage, block, *p.step, true);
  RingPosition ring;
  w.watch(p.hang, p.deadline_ns, block);
  w.at_task(static_cast<uint32_t>(number));
  if (w.index() == kConsumerWarps) return load_tile<false>(stage, p.constants, tile, w, ring);
  trace_begin(p, number, w);
  compute_tile<false>(stage, p.constants, tile, *p.step, w, ring);
  trace_end(p, number, w);
}

TILE_FN bool loader_waits(KernelId kernel) {
  switch (kernel) {
#define REDLINE_KERNEL(K) \
  case KernelId::k##K: return K::kLoaderWaits;
    REDLINE_TILE_SWITCH(REDLINE_KERNEL)
#undef REDLINE_KERNEL
    default: break;
  }
  return false;
}

/// Waits for the events of a task. Returns false if the step was aborted.
TILE_FN bool wait_for_events(const ProgramTables& p, int block, uint32_t place, Warp& w) {
  const ProgramTables::TaskEntry& task = p.tasks[place];
  for (uint32_t wait = task.wait_begin; wait < task.wait_end && !w.is_abandoned(); ++wait) {
    const uint64_t* counter = p.counters + uint64_t{p.waits[wait].event} * kCounterStride;
    const uint64_t count = w.event_wait(counter, p.waits[wait].count * p.epoch);
    if (w.is_abandoned()) w.report_hang({HangReport::kEvent, static_cast<uint32_t>(block), place, wait, count});
  }
  return !w.is_abandoned();
}

/// Returns the next tile to all consumer warps; the first warp takes it.
TILE_FN uint32_t next_tile(Warp& w, RingPosition& ring) {
  w.consumer_sync();  // all warps have read the flag, and the previous tile is complete
  if (w.index() == 0) w.store_shared(Lanes<uint32_t>(uint32_t{kFlagOffset}), Lanes<uint32_t>(Tickets::take(w, ring)));
  w.consumer_sync();
  return w.load_shared_uniform(kFlagOffset);
}

/// Returns how many numbers earlier steps have drawn: in each step every tile, and one number past them for each block.
TILE_FN uint64_t tickets_before(const ProgramTables& p, const StageTable& stage) {
  return (p.epoch - 1) * (static_cast<uint64_t>(stage.tickets) + p.num_lists);
}

/// Runs the loader's part of one persistent step. It goes through the list independently: weights depend on no event,
/// so the ring fills with weights of the next tasks while the consumers compute or wait.
TILE_FN void load_persistent(const ProgramTables& p, int block, Warp& w) {
  RingPosition ring;
  w.watch(p.hang, p.deadline_ns, block);
  for (uint32_t i = p.list_begin[block]; i < p.list_begin[block + 1] && !w.is_abandoned(); ++i) {
    w.at_task(i);
    const ProgramTables::TaskEntry& task = p.tasks[i];
    const StageTable& stage = p.stages[task.stage];
    if (loader_waits(stage.kernel)) wait_for_events(p, block, i, w);
    if (w.is_abandoned()) return;
    uint32_t tile = task.index;
    do {
      if (stage.tickets > 0)
        tile = Tickets::draw(w, ring, p.counters + int64_t{stage.ticket_counter} * kCounterStride,
                             tickets_before(p, stage));
      if (w.is_abandoned() || (stage.tickets > 0 && tile >= static_cast<uint32_t>(stage.tickets))) break;
      load_tile<true>(stage, p.constants, tile_of(stage, static_cast<int32_t>(tile), *p.step, false), w, ring);
    } while (stage.tickets > 0);
  }
}

/// Runs a consumer's part. All warps of the block leave an aborted step at the same task.
TILE_FN void compute_persistent(const ProgramTables& p, int block, Warp& w) {
  RingPosition ring;
  w.watch(p.hang, p.deadline_ns, block);
  for (uint32_t i = p.list_begin[block]; i < p.list_begin[block + 1]; ++i) {
    w.at_task(i);
    const ProgramTables::TaskEntry& task = p.tasks[i];
    const StageTable& stage = p.stages[task.stage];
    if (w.index() == 0) {
      if (p.task_times != nullptr) w.stamp(&p.task_times[i].wait);
      const bool goes_on = wait_for_events(p, block, i, w);
      w.store_shared(Lanes<uint32_t>(uint32_t{kFlagOffset}), Lanes<uint32_t>(goes_on ? 1u : 0u));
    }
    w.consumer_sync();
    if (w.load_shared_uniform(kFlagOffset) == 0) return;
    if (p.task_times != nullptr && w.index() == 0) w.stamp(&p.task_times[i].begin);
    // A single call, so that the code of all kernels exists once.
    uint32_t tile = task.index;
    do {
      if (stage.tickets > 0) tile = next_tile(w, ring);
      if (stage.tickets > 0 && tile >= static_cast<uint32_t>(stage.tickets)) break;
      compute_tile<true>(stage, p.constants, tile_of(stage, static_cast<int32_t>(tile), *p.step, false), *p.step, w,
                         ring);
    } while (stage.tickets > 0);
    w.consumer_sync();
    if (w.index() == 0) {
      if (p.task_times != nullptr) w.stamp(&p.task_times[i].end);
      for (uint32_t n = task.notify_begin; n < task.notify_end; ++n)
        w.event_release(p.counters + uint64_t{p.notifies[n]} * kCounterStride);
    }
  }
}

}  // namespace redline::tiles
