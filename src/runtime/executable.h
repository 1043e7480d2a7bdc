// A graph that is ready to run, compiled or interpreted, with named inputs and outputs.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "graph/program.h"
#include "runtime/device.h"
#include "runtime/runtime_resources.h"
#include "tensor/activation_layout.h"
#include "tensor/kv_page.h"

namespace redline {

/// What holds on every device; kernels, workers and the weight cache are those of the runtime.
struct ExecutableOptions {
  SymbolValues bounds;  ///< the largest sizes of any run
  DeviceChoice device;
  bool interpret = false;  ///< reference mode: op by op in float64, slowly
  bool exact_f32 = false;  ///< never round activations: float32 kernels for every weight type
  BatchInvariance batch_invariance = BatchInvariance::kNone;
  /// Of keys and values within a step (pack_kv). nullopt: the 16-bit type that the device reads fastest; float32 if
  /// exact_f32.
  std::optional<KvFormat> pack_kv_format;
  /// Layers of the graph (graph/split_graph.h) that run on the device, and what comes before; the others run on the
  /// CPU. nullopt: all, and what comes behind.
  std::optional<int64_t> device_layers;
  /// Layers whose experts run on the device; those of the device's other layers run on the CPU. nullopt: all.
  std::optional<int64_t> device_experts;
  /// Output [rows, vocab_size] from which a back end that can do so samples tokens (sampled()); empty: none.
  std::string sample_from;
};

/// Not thread-safe; executables of one runtime take turns on its workers.
class Executable {
 public:
  /// `runtime` must outlive the executable.
  static Result<Executable> make(Graph graph, const ExecutableOptions& options, RuntimeResources& runtime);
  Executable() = default;
  bool empty() const { return !runner_; }

  struct Port {
    std::string name;
    DType dtype = DType::kF32;
    Shape shape;
    /// Its address is set by bind() (graph/external_values.h).
    bool is_bound() const;
  };
  const std::vector<Port>& inputs() const { return input_ports_; }
  const std::vector<Port>& outputs() const { return output_ports_; }
  bool has_input(std::string_view name) const { return find(input_ports_, name) != nullptr; }
  bool has_output(std::string_view name) const { return find(output_ports_, name) != nullptr; }

  /// Memory of the input at its bounds; contents are lost after run(). internal: unknown name, wrong type, or the input
  /// is bound.
  float* input(std::string_view name);
  int32_t* input_i32(std::string_view name);
  /// As written by run(), dense rows; valid until the next run().
  const float* output(std::string_view name) const;
  /// Whether StepContext::samples have an effect.
  bool can_sample() const { return can_sample_; }
  /// Of the last run (Runner::sampled).
  std::span<const int32_t> sampled() const { return runner_->sampled(); }
  /// Sets the address of a bound float32 input or output from the next run() on: dense rows, which must outlive the
  /// runs. internal: unknown name.
  void bind(std::string_view name, float* data);

  /// Waits for its turn on the workers. invalid_argument: a size exceeds its bound.
  Status run(const StepContext& step);
  Status run(const SymbolValues& sizes, std::span<const AdapterSegment> adapters = {});

  /// Layout of the state groups, and memory for them (Runner::make_state_memory).
  const StatePlan& states() const { return runner_->states(); }
  Result<std::unique_ptr<StateMemory>> make_state_memory(std::span<const int64_t> num_pages) const {
    return runner_->make_state_memory(num_pages);
  }

  /// Memory for bound ports (Runner::make_buffer).
  Result<std::unique_ptr<BackendBuffer>> make_buffer(int64_t bytes) const { return runner_->make_buffer(bytes); }

  /// nullptr when interpreted or in parts.
  const Program* program() const { return runner_ ? runner_->program() : nullptr; }
  std::vector<const Program*> programs() const { return runner_ ? runner_->programs() : std::vector<const Program*>{}; }
  AttentionLimits attention_limits(size_t group) const { return runner_->attention_limits(group); }
  /// The compiled program, or the interpreted graph, as text.
  std::string describe() const { return runner_->describe(); }
  /// How a device runs a step; "": the CPU runs it.
  std::string steps_text() const { return runner_->steps_text(); }
  /// As Runner::time_stages().
  Result<std::vector<StageTime>> time_stages(double seconds);
  /// Floating-point operations of the matrix products of one run.
  int64_t flops(const SymbolValues& sizes) const { return flops_.eval(sizes); }
  int64_t resident_arena_bytes() const { return runner_ ? runner_->resident_arena_bytes() : 0; }
  int64_t weight_bytes() const {
    int64_t bytes = 0;
    for (const Program* part : programs()) bytes += part->weight_bytes;
    return bytes;
  }

 private:
  static const Port* find(const std::vector<Port>& ports, std::string_view name);
  std::vector<Port> input_ports_, output_ports_;
  Dim flops_ = 0;
  bool can_sample_ = false;
  RuntimeResources* runtime_ = nullptr;
  std::unique_ptr<Runner> runner_;
};

}  // namespace redline
