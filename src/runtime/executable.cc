#include "runtime/executable.h"

#include <algorithm>

#include "backends/cpu/executor.h"
#include "backends/tiles/tile_lowering.h"
#include "backends/tiles/tile_runner.h"
#include "graph/external_values.h"
#include "graph/passes/passes.h"
#include "runtime/interpreter.h"

namespace redline {

KvFormat joint_kv_format(const CpuKernels& kernels, bool exact_f32) {
  if (exact_f32) return KvFormat::kF32;
  return kernels.has_tile_unit || kernels.has_fast_bf16_dot ? KvFormat::kBF16 : KvFormat::kF16;
}

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
    REDLINE_ASSIGN(e.runner_, make_interpreter_runner(std::move(graph), options.compile.bounds));
    return e;
  }
  std::lock_guard lock(runtime.mutex());
  REDLINE_TRY(run_passes(graph));
  if (options.device.kind != DeviceKind::kCpu) {
    REDLINE_ASSIGN(std::shared_ptr<OpenDevice> device, runtime.device(options.device));
    const TileCompileOptions tiles = {.bounds = options.compile.bounds,
                                      .exact_f32 = options.compile.exact_f32,
                                      .reuse_memory = options.compile.reuse_memory};
    REDLINE_ASSIGN(Program program, compile_tiles(std::move(graph), tiles, std::move(device), runtime.team()));
    e.runner_ =
        std::make_unique<TileRunner>(std::move(program), TileRunnerOptions{.hang_seconds = runtime.hang_seconds});
    return e;
  }
  CompileOptions compile_options = options.compile;
  compile_options.kernels = &runtime.kernels();
  compile_options.weight_cache = runtime.weight_cache;
  REDLINE_ASSIGN(Program program, compile(std::move(graph), compile_options, runtime.team()));
  ExecutorOptions executor;
  executor.timeline = runtime.timeline();
  executor.hang_seconds = runtime.hang_seconds;
  executor.watchdog = &runtime.watchdog();
  executor.turns = &runtime.mutex();
  e.runner_ = std::make_unique<Executor>(std::move(program), runtime.team(), executor);
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
