// The interface by which a compiled program, or an interpreted graph, runs step after step.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/backend_memory.h"
#include "graph/program.h"

namespace redline {

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
