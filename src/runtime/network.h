// An executable graph with named inputs and outputs: compiled for a team of workers, or interpreted.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "backends/cpu/executor.h"
#include "backends/cpu/lowering.h"
#include "runtime/interpreter.h"

namespace redline {

/// Storage type of keys and values in image models: bfloat16 where a tile unit (AMX) reads it, as bfloat16 models use
/// elsewhere; float16 on vector units, for the same memory.
KvFormat joint_kv_format(const CpuKernels& kernels, bool exact_f32);

struct NetworkOptions {
  CompileOptions compile;
  bool interpret = false;        ///< reference mode: op by op in float64, slowly
  Timeline* timeline = nullptr;  ///< must outlive the network
  double hang_seconds = ExecutorOptions().hang_seconds;
};

/// Not thread-safe; networks of one team run one at a time. For graphs without a paged cache.
class Network {
 public:
  /// `team` must outlive the network.
  static Result<Network> make(Graph graph, const NetworkOptions& options, WorkerTeam& team);
  Network() = default;
  bool empty() const { return !runner_ && !interpreter_; }

  bool has_input(std::string_view name) const { return find(input_ports_, name); }
  /// Memory of the input at its bounds; contents are lost after run(). internal: unknown name, wrong type, or the input
  /// is bound.
  float* input(std::string_view name);
  int32_t* input_i32(std::string_view name);
  /// As written by run(), dense rows; valid until the next run().
  const float* output(std::string_view name) const;
  bool has_output(std::string_view name) const { return find(output_ports_, name); }
  struct Port {
    std::string name;
    DType dtype = DType::kF32;
    Shape shape;
    /// Its address is set by bind() (graph/bound_values.h).
    bool is_bound() const;
  };
  /// Sets the address of a bound float32 input or output from the next run() on: dense rows, which must outlive the
  /// runs. internal: unknown name.
  void bind(std::string_view name, float* data);
  const std::vector<Port>& inputs() const { return input_ports_; }
  const std::vector<Port>& outputs() const { return output_ports_; }
  /// invalid_argument: a size exceeds its bound.
  Status run(const SymbolValues& sizes, std::span<const AdapterSegment> adapters = {});

  const Program* program() const { return runner_ ? &runner_->program() : nullptr; }
  /// Floating-point operations of the matrix products of one run.
  int64_t flops(const SymbolValues& sizes) const { return flops_.eval(sizes); }
  int64_t resident_arena_bytes() const { return runner_ ? runner_->resident_arena_bytes() : 0; }
  int64_t weight_bytes() const { return runner_ ? runner_->program().weight_bytes : 0; }

 private:
  static bool find(const std::vector<Port>& ports, std::string_view name);
  std::vector<Port> input_ports_, output_ports_;
  Dim flops_ = 0;
  std::unique_ptr<ProgramRunner> runner_;
  std::unique_ptr<Interpreter> interpreter_;
  std::map<std::string, float*, std::less<>> bound_;  ///< for the interpreter
  // For the interpreter: inputs at their bounds, outputs of the last run.
  std::map<std::string, std::vector<float>, std::less<>> inputs_, outputs_;
  std::map<std::string, std::vector<int32_t>, std::less<>> integers_;
};

}  // namespace redline
