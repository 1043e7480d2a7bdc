// A graph ready to run by the names of its inputs and outputs: compiled for a team of workers, or interpreted.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "backends/cpu/executor.h"
#include "backends/cpu/lowering.h"
#include "runtime/interpreter.h"

namespace redline {

/// What keys and values of pictures are stored in: bfloat16 where a tile unit reads it, which is what networks of
/// bfloat16 are run in elsewhere; float16 where vectors do, for the same memory.
KvFormat joint_kv_format(const CpuKernels& kernels, bool exact_f32);

struct NetworkOptions {
  CompileOptions compile;
  bool interpret = false;        ///< op by op in float64: slow, the reference
  Timeline* timeline = nullptr;  ///< outlives the network
  double hang_seconds = ExecutorOptions().hang_seconds;
};

/// Not for use by two threads at once; networks of one team take turns. Fits graphs without a paged cache.
class Network {
 public:
  /// `team` outlives the network.
  static Result<Network> make(Graph graph, const NetworkOptions& options, WorkerTeam& team);
  Network() = default;
  bool empty() const { return !runner_ && !interpreter_; }

  bool has_input(std::string_view name) const { return find(input_ports_, name); }
  /// Room for the input at the bounds; what was written is gone after run(). internal: there is none of that name or
  /// type, or it is bound.
  float* input(std::string_view name);
  int32_t* input_i32(std::string_view name);
  /// As run() left it, dense rows; valid until the next run().
  const float* output(std::string_view name) const;
  bool has_output(std::string_view name) const { return find(output_ports_, name); }
  struct Port {
    std::string name;
    DType dtype = DType::kF32;
    Shape shape;
    /// Lies where bind() says (graph/bound_values.h).
    bool is_bound() const;
  };
  /// Where a bound input or output of float32 lies from the next run() on: dense rows, which outlive the runs.
  /// internal: there is none of that name.
  void bind(std::string_view name, float* data);
  const std::vector<Port>& inputs() const { return input_ports_; }
  const std::vector<Port>& outputs() const { return output_ports_; }
  /// invalid_argument: a size above its bound.
  Status run(const SymbolValues& sizes);

  const Program* program() const { return runner_ ? &runner_->program() : nullptr; }
  /// Floating-point operations of one run's products.
  int64_t flops(const SymbolValues& sizes) const { return flops_.eval(sizes); }
  int64_t resident_arena_bytes() const { return runner_ ? runner_->resident_arena_bytes() : 0; }
  int64_t weight_bytes() const { return runner_ ? runner_->program().weight_bytes : 0; }

 private:
  static bool find(const std::vector<Port>& ports, std::string_view name);
  std::vector<Port> input_ports_, output_ports_;
  Dim flops_ = 0;
  std::unique_ptr<ProgramRunner> runner_;
  std::unique_ptr<Interpreter> interpreter_;
  std::map<std::string, float*, std::less<>> bound_;  ///< of the interpreter
  // Of the interpreter: inputs at their bounds, outputs of the last run.
  std::map<std::string, std::vector<float>, std::less<>> inputs_, outputs_;
  std::map<std::string, std::vector<int32_t>, std::less<>> integers_;
};

}  // namespace redline
