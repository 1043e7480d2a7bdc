// The compiled form of a graph: stages cut into tile tasks, the events between them, and one task list per worker. The
// schedule is device-independent; code and memory belong to the payload of a back end, and a Runner
// (backends/runner.h) executes both.
//
// A task waits until each of its events has reached its count, computes its tile, and notifies. An event is a 64-bit
// counter that only grows: in step s a wait is `counter >= count * s`, so nothing is reset between steps (as in Mirage,
// github.com/mirage-project/mirage; counted events between tiles are from Event Tensor, arXiv 2604.13327). Task lists
// follow an order in which no task comes before one that it waits for, so the earliest unfinished task can always run:
// no deadlock. In `Program` itself that is the order of the graph.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/state.h"
#include "graph/step.h"
#include "graph/task_grid.h"

namespace redline {

/// A value that a stage reads, and how its tasks read it.
struct StageRead {
  ValueId value;
  Reads reads;
};

/// Positions at which the rows of a kFractions grid may be cut into parts that give the same bits as all rows at once.
enum class RowCuts : uint8_t {
  kNone,
  kAtRows,       ///< at multiples of kWaveGrain rows
  kAtPositions,  ///< kAtRows, and within a sequence only where the position is also a multiple of kWaveGrain
};

/// The description of one lowered op, or a part of one, for planning: a grid of tasks and the values they read and
/// write. The code belongs to the back end.
struct StagePlan {
  std::string name;
  std::string_view op;
  TaskGrid grid;
  std::vector<StageRead> reads;
  std::vector<ValueId> writes;
  /// The first of `writes` may overwrite this input, because every tile reads an element before it overwrites it. -1:
  /// none.
  ValueId in_place_of = -1;
  RowCuts row_cuts = RowCuts::kNone;
  /// If true and there are several row parts, each task depends on the preceding row chunk of the same columns.
  bool rows_in_order = false;
  int row_dim = 0;  ///< index of grid.rows in Program::row_dims
};

/// Grain of row cuts. Row panels of every activation layout, and the chunks of a scan, begin at multiples of it.
inline constexpr int64_t kWaveGrain = 32;

/// One task. Its waits and notifications are ranges of Program::waits and Program::notifies.
struct Task {
  uint32_t stage;
  uint32_t index;
  uint32_t wait_begin, wait_end;
  uint32_t notify_begin, notify_end;
};

/// A wait of a task for an event.
struct Wait {
  uint32_t event;
  uint32_t count;  ///< notifications per step
};

/// The place of a value in the arena.
struct ArenaBlock {
  ValueId value;
  int64_t offset, bytes;
  /// The value is live in stages [first_stage, last_stage]; inputs from -1 on, outputs to the end.
  int first_stage, last_stage;
};

/// Bytes of the values, with and without memory reuse.
struct ArenaPlan {
  std::vector<ArenaBlock> blocks;
  int64_t bytes = 0;
  int64_t bytes_without_reuse = 0;
};

/// All tasks of a program once: a list for each worker, and the events between them.
struct TaskSchedule {
  std::vector<TaskGrid> grids;           ///< [stages]: task grid of each stage
  std::vector<std::vector<Task>> tasks;  ///< [workers]
  std::vector<Wait> waits;
  std::vector<uint32_t> notifies;
  uint32_t num_events = 0;
  std::vector<std::string> event_names;  ///< names for debug dumps
};

/// A second schedule of the same stages for steps of many rows. Stages around a recurrence are cut at rows, so that
/// the layer above begins with the first rows while the recurrence of this layer is still running (plan_wavefront).
struct Wavefront : TaskSchedule {
  int64_t min_tokens = 0;           ///< minimum number of tokens of a step that uses this schedule
  RowCuts cuts = RowCuts::kAtRows;  ///< the strictest row_cuts of the stages that are cut
};

/// Base class of the code, constants and memory that a back end adds to the schedule.
struct ProgramPayload {
  virtual ~ProgramPayload() = default;
};

/// A device-independent schedule with the payload of the back end that compiled it.
struct Program : TaskSchedule {
  std::string name;
  int workers = 1;
  SymbolValues bounds;
  std::vector<StagePlan> stages;
  std::vector<Dim> row_dims;  ///< the distinct row sizes of the stages
  AttentionLimits attention;
  std::optional<Wavefront> wavefront;
  ArenaPlan arena_plan;
  StatePlan states;
  int64_t weight_bytes = 0;

  /// A named input or output of the program.
  struct Port {
    std::string name;
    DType dtype;
    Shape shape;
    ValueId value;
  };
  std::vector<Port> inputs, outputs;
  std::unique_ptr<ProgramPayload> payload;

  /// Returns the schedule for steps of these sizes.
  const TaskSchedule& schedule_of(const SymbolValues& sizes) const;
  /// Returns the schedule of a step. It is the wavefront only if the step's sequences may be cut where the wavefront
  /// cuts (Wavefront::cuts).
  const TaskSchedule& schedule_of(const StepContext& step) const;
  const Port* find_input(std::string_view port_name) const;
  const Port* find_output(std::string_view port_name) const;
  /// Returns a human-readable list of stages, tasks, events and memory.
  std::string to_string() const;
};

}  // namespace redline
