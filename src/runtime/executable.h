// A graph that is ready to run, compiled or interpreted, with named inputs and outputs.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "backends/runner.h"
#include "runtime/device.h"
#include "runtime/runtime_resources.h"
#include "tensor/activation_layout.h"
#include "tensor/kv_page.h"

namespace redline {

/// Options that apply on every device. Kernels, workers and the weight cache belong to the runtime.
struct ExecutableOptions {
  SymbolValues bounds;  ///< upper bounds of the sizes of any run
  DeviceChoice device;
  bool interpret = false;  ///< reference mode: op by op in float64, slowly
  bool exact_f32 = false;  ///< never round activations: float32 kernels for every weight type
  BatchInvariance batch_invariance = BatchInvariance::kNone;
  /// Format of keys and values within a step (pack_kv). nullopt: the 16-bit type that the device reads fastest, or
  /// float32 if exact_f32.
  std::optional<KvFormat> pack_kv_format;
  /// Number of first layers of the graph (graph/split_graph.h) that run on the device, together with the ops before
  /// them; the other layers run on the CPU. nullopt: the whole graph runs on the device.
  std::optional<int64_t> device_layers;
  /// Number of first layers whose experts run on the device; experts of the device's other layers run on the CPU.
  /// nullopt: all.
  std::optional<int64_t> device_experts;
};

/// A graph ready to run. Not thread-safe; executables of one runtime take turns on its workers.
class Executable {
 public:
  /// Compiles the graph, or prepares to interpret it. `runtime` must outlive the executable.
  static Result<Executable> make(Graph graph, const ExecutableOptions& options, RuntimeResources& runtime);
  Executable() = default;
  bool empty() const { return !runner_; }
  /// Returns the device that the executable was made for; the CPU if the graph is interpreted.
  const DeviceChoice& device() const { return device_; }

  /// A named input or output.
  struct Port {
    std::string name;
    DType dtype = DType::kF32;
    Shape shape;
    PortRole role = PortRole::kNone;
    /// Returns true if the port's address is set by bind() (graph/external_values.h).
    bool is_bound() const;
  };
  const std::vector<Port>& inputs() const { return input_ports_; }
  const std::vector<Port>& outputs() const { return output_ports_; }
  bool has_input(std::string_view name) const { return find(input_ports_, name) != nullptr; }
  bool has_output(std::string_view name) const { return find(output_ports_, name) != nullptr; }

  /// Returns the input's memory as input_i32(name) does; nullptr: no input has this role.
  int32_t* input_i32(PortRole role);
  /// Returns the memory of the input with this role and, of several, this number; nullptr: there is none.
  float* input(PortRole role, size_t number = 0);
  /// Returns the output with this role and, of several, this number; nullptr: there is none.
  const float* output(PortRole role, size_t number = 0) const;
  bool has_input(PortRole role) const { return find(input_ports_, role, 0) != nullptr; }
  bool has_output(PortRole role) const { return find(output_ports_, role, 0) != nullptr; }
  /// Returns the memory of the input, sized for its bounds; contents are lost after run(). internal: unknown name,
  /// wrong type, or the input is external.
  float* input(std::string_view name);
  int32_t* input_i32(std::string_view name);
  /// Returns the output as written by run(), in dense rows; valid until the next run().
  const float* output(std::string_view name) const;
  /// Returns the int32 output with this role as output() does; nullptr: there is none.
  const int32_t* output_i32(PortRole role) const;
  /// Sets the address of an external float32 input or output from the next run() on. It has dense rows and must outlive
  /// the runs. internal: unknown name.
  void bind(std::string_view name, float* data);

  /// Runs a step after waiting for its turn on the workers. invalid_argument: a size exceeds its bound.
  Status run(const StepContext& step);
  Status run(const SymbolValues& sizes, std::span<const AdapterSegment> adapters = {});

  /// Returns the layout of the state groups.
  const StatePlan& states() const { return runner_->states(); }
  Result<std::unique_ptr<StateMemory>> make_state_memory(std::span<const int64_t> num_pages) const {
    return runner_->make_state_memory(num_pages);
  }

  /// Allocates memory for external ports (Runner::make_buffer).
  Result<std::unique_ptr<BackendBuffer>> make_buffer(int64_t bytes) const { return runner_->make_buffer(bytes); }

  /// Returns nullptr if the graph is interpreted or runs in parts.
  const Program* program() const { return runner_ ? runner_->program() : nullptr; }
  std::vector<const Program*> programs() const { return runner_ ? runner_->programs() : std::vector<const Program*>{}; }
  AttentionLimits attention_limits(size_t group) const { return runner_->attention_limits(group); }
  /// Returns the compiled program, or the interpreted graph, as text.
  std::string describe() const { return runner_->describe(); }
  /// Describes how a device runs a step; "" if the CPU runs it.
  std::string steps_text() const { return runner_->steps_text(); }
  /// Times stages as Runner::time_stages().
  Result<std::vector<StageTime>> time_stages(double seconds);
  /// Returns the floating-point operations of the matrix products of one run.
  int64_t flops(const SymbolValues& sizes) const { return flops_.eval(sizes); }
  int64_t resident_arena_bytes() const { return runner_ ? runner_->resident_arena_bytes() : 0; }
  int64_t weight_bytes() const {
    int64_t bytes = 0;
    for (const Program* part : programs()) bytes += part->weight_bytes;
    return bytes;
  }

 private:
  static const Port* find(const std::vector<Port>& ports, std::string_view name);
  static const Port* find(const std::vector<Port>& ports, PortRole role, size_t number);
  std::vector<Port> input_ports_, output_ports_;
  Dim flops_ = 0;
  DeviceChoice device_;
  RuntimeResources* runtime_ = nullptr;
  std::unique_ptr<Runner> runner_;
};

}  // namespace redline
