// The compiled form of a graph: stages cut into tile tasks, the events between them, and one task list per worker. The
// schedule is device-independent; code and memory belong to the payload of a back end, and a Runner executes
// both.
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

/// The pages of the state groups of one program, in the memory of its device.
class StateMemory {
 public:
  virtual ~StateMemory() = default;
  /// Address of page 0 of a group.
  virtual uint8_t* pages(size_t group) = 0;
  virtual void copy_page(size_t group, int64_t from, int64_t to) = 0;
  virtual void clear_page(size_t group, int64_t page) = 0;
  /// States that the contents of pages [begin, end) are no longer needed. Their memory may be returned to the system
  /// until they are written again.
  virtual void discard_pages(size_t group, int64_t begin, int64_t end) {}
  /// Returns true if the host may read and write at pages(group). If not, it must copy pages with download_page() and
  /// upload_page().
  virtual bool is_host_memory(size_t group) const { return true; }
  virtual Status download_page(size_t group, int64_t page, uint8_t* to) { return no_copies(); }
  virtual Status upload_page(size_t group, int64_t page, const uint8_t* from) { return no_copies(); }

 private:
  static Status no_copies() { return internal("pages in host memory are not copied"); }
};

class BackendBuffer;

/// Arithmetic with float32 numbers in buffers of a device, without the host.
class BufferMath {
 public:
  virtual ~BufferMath() = default;
  /// A part of a buffer that starts at number `begin`. Without a buffer the part is all zeros.
  struct Part {
    BackendBuffer* buffer = nullptr;
    int64_t begin = 0;
  };
  /// Identifies the device: parts of buffers with the same device may be used in one call.
  virtual const void* device() const = 0;
  /// Computes to = base + sum of weights[k] * tensors[k], in the order of k.
  virtual Status weighted_sum(Part to, Part base, std::span<const float> weights, std::span<const Part> tensors,
                              int64_t elements) = 0;
  /// Returns the sum of |a - b|. Differences are float32, sums float64, in an order that depends on `elements` only.
  virtual Result<double> distance(Part a, Part b, int64_t elements) = 0;
  /// Returns the sum of (a - b) (c - d), with the same rounding and order as distance().
  virtual Result<double> product(Part a, Part b, Part c, Part d, int64_t elements) = 0;
};

/// Memory of a back end that outlives steps, for external values. A buffer on a device also has a host copy, which is
/// allocated and updated only when the host reads it.
class BackendBuffer {
 public:
  virtual ~BackendBuffer() = default;
  /// Returns the address for Runner::bind, valid until the next call of host(). `step_writes`: true if the step writes
  /// the value, false if it only reads it.
  virtual uint8_t* address(bool step_writes) = 0;
  /// Returns the contents for the host to read and write, valid as long as no step runs and address() is not called.
  virtual uint8_t* host() = 0;
  /// Copies bytes of `from`, a buffer of the same back end, without the host.
  virtual void copy(int64_t to, BackendBuffer& from, int64_t begin, int64_t bytes) = 0;
  /// Returns a new buffer of the same back end.
  virtual Result<std::unique_ptr<BackendBuffer>> make_like(int64_t bytes) = 0;
  /// Returns nullptr if the host must compute with host().
  virtual BufferMath* math() { return nullptr; }
};

/// The time of one launch of stages of one kind (Runner::time_stages).
struct StageTime {
  std::string op;
  int64_t rows = 0, cols = 0;
  int64_t count = 0;           ///< number of stages of the kind in a step
  bool is_by_library = false;  ///< the device's library runs the product
  double seconds = 0;          ///< time of each stage
  double bytes = 0;            ///< bytes that each stage reads and writes; 0: depends on the data
  double flops = 0;            ///< floating-point operations of the matrix products of each stage
};

/// Runs a compiled program or an interpreted graph, step after step. Not thread-safe.
class Runner {
 public:
  virtual ~Runner() = default;
  /// Returns nullptr if the graph is interpreted or runs in parts.
  virtual const Program* program() const = 0;
  /// Returns the programs of all parts; empty if the graph is interpreted.
  virtual std::vector<const Program*> programs() const {
    return program() ? std::vector{program()} : std::vector<const Program*>{};
  }
  /// Returns the limits for attention plans of a kKeyValue group. No partitions: the group needs no plan.
  virtual AttentionLimits attention_limits(size_t group) const {
    return program() ? program()->attention : AttentionLimits();
  }
  virtual const StatePlan& states() const = 0;
  /// Allocates `num_pages` pages for each state group; memory is touched on first use. out_of_memory: the address space
  /// is not available.
  virtual Result<std::unique_ptr<StateMemory>> make_state_memory(std::span<const int64_t> num_pages) const = 0;
  /// Runs all tasks once and returns when every output is written.
  /// invalid_argument: a size exceeds its bound. internal: no progress; the message is a state dump, and the runner
  /// refuses further steps.
  virtual Status step(const StepContext& context) = 0;
  /// Allocates a buffer whose pages are mapped on first use. out_of_memory: states the bytes.
  virtual Result<std::unique_ptr<BackendBuffer>> make_buffer(int64_t bytes) const = 0;
  /// Returns the host memory of a port: inputs are written before a step, outputs read after it. nullptr: unknown port.
  virtual void* host_input(std::string_view name) = 0;
  virtual const void* host_output(std::string_view name) const = 0;
  /// Returns the tokens that the last step sampled as requested by StepContext::samples, one per row of logits. -1: the
  /// host has to sample this row, and its logits are in the output. Logits of other rows stay on the device. Empty:
  /// this runner does not sample.
  virtual std::span<const int32_t> sampled() const { return {}; }
  /// Returns the resident bytes of the arena. Pages that no step has touched do not count.
  virtual int64_t resident_arena_bytes() const = 0;
  /// Sets the address of an external input or output (graph/external_values.h) from the next step on. Returns false if
  /// the name is unknown.
  virtual bool bind(std::string_view name, void* data) = 0;
  /// Returns the program, or the interpreted graph, as text.
  virtual std::string describe() const = 0;
  /// Describes how a device runs a step (backends/tiles/step_choice.h); "" if the CPU runs it.
  virtual std::string steps_text() const { return ""; }
  /// For benchmarks: runs the stages of the last step repeatedly, all of one kind after another, for about `seconds`
  /// each. Values that the next step reads may be wrong afterwards. unsupported: the runner is not a device's.
  virtual Result<std::vector<StageTime>> time_stages(double) {
    return unsupported("only the stages of a device are timed by themselves");
  }
};

}  // namespace redline
