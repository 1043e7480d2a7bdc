#include "runtime/executable.h"

#include <algorithm>

#include "backends/cpu/executor.h"
#include "backends/cpu/lowering.h"
#include "backends/tiles/tile_lowering.h"
#include "backends/tiles/tile_runner.h"
#include "graph/external_values.h"
#include "graph/pass.h"
#include "runtime/interpreter.h"
#include "runtime/split_runner.h"

namespace redline {

namespace {

/// bfloat16 where a tile unit (AMX) or fast dot products read it; float16 on vector units, for the same memory.
KvFormat fastest_kv_format(const CpuKernels& kernels) {
  return kernels.has_tile_unit || kernels.has_fast_bf16_dot ? KvFormat::kBF16 : KvFormat::kF16;
}

Result<std::unique_ptr<Runner>> make_tile_runner(Graph graph, const ExecutableOptions& options,
                                                 RuntimeResources& runtime) {
  REDLINE_ASSIGN(std::shared_ptr<OpenDevice> device, runtime.device(options.device));
  const TileCompileOptions compile = {
      .bounds = options.bounds, .exact_f32 = options.exact_f32, .sample_from = options.sample_from};
  REDLINE_ASSIGN(Program program, compile_tiles(std::move(graph), compile, std::move(device), runtime.team()));
  return std::unique_ptr<Runner>(
      std::make_unique<TileRunner>(std::move(program), TileRunnerOptions{.hang_seconds = runtime.hang_seconds}));
}

Result<std::unique_ptr<Runner>> make_cpu_runner(Graph graph, const ExecutableOptions& options,
                                                RuntimeResources& runtime) {
  const CpuCompileOptions compile = {
      .bounds = options.bounds,
      .kernels = &runtime.kernels(),
      .exact_f32 = options.exact_f32,
      .batch_invariance = options.batch_invariance,
      .pack_kv_format = options.pack_kv_format.value_or(fastest_kv_format(runtime.kernels())),
      .weight_cache = runtime.weight_cache};
  REDLINE_ASSIGN(Program program, compile_cpu(std::move(graph), compile, runtime.team()));
  const ExecutorOptions executor = {.hang_seconds = runtime.hang_seconds,
                                    .timeline = runtime.timeline(),
                                    .watchdog = &runtime.watchdog(),
                                    .turns = &runtime.mutex()};
  return std::unique_ptr<Runner>(std::make_unique<Executor>(std::move(program), runtime.team(), executor));
}

/// Ops from `first` on run on the CPU.
Result<std::unique_ptr<Runner>> make_split_runner(const Graph& graph, size_t first, const ExecutableOptions& options,
                                                  RuntimeResources& runtime) {
  REDLINE_ASSIGN(SplitGraph split, split_graph(graph, first));
  REDLINE_TRY(run_passes(split.front));
  REDLINE_TRY(run_passes(split.back));
  ExecutableOptions front_options = options;
  front_options.sample_from = "";
  REDLINE_ASSIGN(auto front, make_tile_runner(split.front, front_options, runtime));
  REDLINE_ASSIGN(auto back, make_cpu_runner(split.back, options, runtime));
  return std::unique_ptr<Runner>(std::make_unique<SplitRunner>(split, std::move(front), std::move(back)));
}

}  // namespace

bool Executable::Port::is_bound() const { return is_external_name(name); }

Result<Executable> Executable::make(Graph graph, const ExecutableOptions& options, RuntimeResources& runtime) {
  Executable e;
  e.runtime_ = &runtime;
  const auto ports = [&](const std::vector<ValueId>& ids, std::vector<Port>& out) {
    for (const ValueId id : ids) out.push_back({graph.value(id).name, graph.value(id).dtype, graph.value(id).shape});
  };
  ports(graph.inputs, e.input_ports_);
  ports(graph.outputs, e.output_ports_);
  e.flops_ = graph.flops();
  if (options.interpret) {
    REDLINE_ASSIGN(e.runner_, make_interpreter_runner(std::move(graph), options.bounds));
    return e;
  }
  std::lock_guard lock(runtime.mutex());
  if (options.device.kind != DeviceKind::kCpu && options.device_layers) {
    const size_t first = first_op_of_layer(graph, *options.device_layers);
    if (first < graph.ops.size()) {
      REDLINE_ASSIGN(e.runner_, make_split_runner(graph, first, options, runtime));
      return e;
    }
  }
  REDLINE_TRY(run_passes(graph));
  const auto make_runner = options.device.kind == DeviceKind::kCpu ? make_cpu_runner : make_tile_runner;
  REDLINE_ASSIGN(e.runner_, make_runner(std::move(graph), options, runtime));
  e.can_sample_ = options.device.kind != DeviceKind::kCpu && !options.sample_from.empty();
  return e;
}

const Executable::Port* Executable::find(const std::vector<Port>& ports, std::string_view name) {
  const auto at = std::find_if(ports.begin(), ports.end(), [&](const Port& port) { return port.name == name; });
  return at == ports.end() ? nullptr : &*at;
}

float* Executable::input(std::string_view name) {
  const Port* port = find(input_ports_, name);
  REDLINE_CHECK(port && port->dtype == DType::kF32 && !port->is_bound());
  return static_cast<float*>(runner_->host_input(name));
}

int32_t* Executable::input_i32(std::string_view name) {
  const Port* port = find(input_ports_, name);
  REDLINE_CHECK(port && port->dtype == DType::kI32);
  return static_cast<int32_t*>(runner_->host_input(name));
}

const float* Executable::output(std::string_view name) const {
  const Port* port = find(output_ports_, name);
  REDLINE_CHECK(port && port->dtype == DType::kF32);
  return static_cast<const float*>(runner_->host_output(name));
}

void Executable::bind(std::string_view name, float* data) { REDLINE_CHECK(runner_->bind(name, data)); }

Status Executable::run(const StepContext& step) {
  std::lock_guard lock(runtime_->mutex());
  return runner_->step(step);
}

Status Executable::run(const SymbolValues& sizes, std::span<const AdapterSegment> adapters) {
  StepContext step;
  step.sizes = sizes;
  step.adapters = adapters;
  return run(step);
}

}  // namespace redline
