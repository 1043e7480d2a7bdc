// The compiled form of a graph: stages cut into tile tasks, the events between them, and one task list per worker.
//
// A task waits until each of its events has counted far enough, computes its tile, and notifies. An event is a 64-bit
// counter that only grows: in step s a wait is `counter >= count * s`, so nothing is reset between steps (the trick is
// Mirage's, github.com/mirage-project/mirage; the idea of counted events between tiles is Event Tensor, arXiv
// 2604.13327). Task lists follow the order of the graph, so the earliest unfinished task can always run: no deadlock.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "graph/attention_step.h"
#include "graph/graph.h"
#include "graph/weight_cache.h"

namespace redline {

/// What changes from step to step.
struct StepContext {
  SymbolValues sizes;
  const AttentionStep* attention = nullptr;
};

/// Belongs to one worker thread.
struct WorkerContext {
  int worker = 0;
  void* scratch = nullptr;  ///< kScratchBytes, for kernels
  void* buffer = nullptr;   ///< Program::buffer_bytes, for what a task keeps between its kernels
};

/// The part of a stage that one task computes. Rows are cut into equal fractions of what the step has; columns at fixed
/// places.
struct Tile {
  int64_t row_begin, row_end;
  int64_t col_begin, col_end;
  int32_t index;  ///< number of the task in its stage
};

/// Bytes that a task reads first, in the order in which it reads them.
struct FirstBytes {
  const void* data[2] = {nullptr, nullptr};
  int64_t bytes[2] = {0, 0};
};

struct Stage;
using TaskFn = void (*)(const Stage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker);

/// How the tile of a consumer touches a value that it reads.
enum class Reads : uint8_t {
  kTile,  ///< the same rows and columns as it writes
  kRows,  ///< all columns of the same rows
  kAll,   ///< anything
};

struct StageRead {
  ValueId value;
  Reads reads;
};

/// One lowered op (or part of one): a grid of tasks that run the same function.
struct Stage {
  std::string name;
  std::string_view op;
  TaskFn run = nullptr;
  /// Weights that the tile reads first, or nullptr: fetched while the task waits for its events.
  FirstBytes (*first_weights)(const Stage& stage, const Tile& tile) = nullptr;
  std::vector<void*> operands;        ///< data of the op's inputs, then outputs; order is the op page's own
  std::shared_ptr<const void> attrs;  ///< the op page's own struct

  Dim rows = 1;
  int64_t cols = 1;
  int row_tiles = 1;
  std::vector<int64_t> col_begin;  ///< [col_tiles + 1]
  std::vector<StageRead> reads;
  std::vector<ValueId> writes;
  ValueId in_place_of = -1;  ///< the output may lie over this input: every tile reads what it overwrites first
  int64_t buffer_bytes = 0;  ///< of WorkerContext::buffer that a task needs
  int row_dim = 0;           ///< index into Program::row_dims

  int col_tiles() const { return static_cast<int>(col_begin.size()) - 1; }
  int num_tasks() const { return row_tiles * col_tiles(); }
  template <class T>
  const T& attrs_as() const {
    return *static_cast<const T*>(attrs.get());
  }
  template <class T>
  T* operand(size_t i) const {
    return static_cast<T*>(operands[i]);
  }
};

/// Fixed size. Waits and notifications are ranges of Program::waits and Program::notifies.
struct Task {
  uint32_t stage;
  uint32_t index;
  uint32_t wait_begin, wait_end;
  uint32_t notify_begin, notify_end;
};

struct Wait {
  uint32_t event;
  uint32_t count;  ///< notifications per step
};

struct ArenaSlot {
  ValueId value;
  int64_t offset, bytes;
  int first_stage, last_stage;  ///< live in [first_stage, last_stage]; inputs from -1, outputs to the end
};

/// Bytes of the values, with and without sharing.
struct ArenaPlan {
  std::vector<ArenaSlot> slots;
  int64_t bytes = 0;
  int64_t bytes_without_reuse = 0;
};

struct Program {
  std::string name;
  int workers = 1;
  SymbolValues bounds;
  std::vector<Stage> stages;
  std::vector<Dim> row_dims;             ///< the distinct row sizes of the stages
  std::vector<std::vector<Task>> tasks;  ///< [workers]
  std::vector<Wait> waits;
  std::vector<uint32_t> notifies;
  uint32_t num_events = 0;
  std::vector<std::string> event_names;  ///< for dumps
  int64_t buffer_bytes = 0;              ///< the most that a stage needs
  int attention_slots = 0;               ///< tasks of each attention stage: slots of the attention plan

  ArenaPlan arena_plan;
  AlignedBuffer arena;
  std::vector<AlignedBuffer> weights;
  int64_t weight_bytes = 0;
  std::unique_ptr<WeightCacheWriter>
      weight_writer;  ///< reads `weights`, so it goes before them; null: nothing to write

  struct Port {
    std::string name;
    void* data;
    DType dtype;
    Shape shape;
  };
  std::vector<Port> inputs, outputs;

  const Port* find_input(std::string_view port_name) const;
  const Port* find_output(std::string_view port_name) const;
  Tile tile_of(const Task& task, int64_t rows) const;
  /// Stages, tasks, events and memory, for people.
  std::string to_string() const;
};

}  // namespace redline
