#include "runtime/executable.h"

#include <algorithm>

#include "backends/cpu/executor.h"
#include "backends/cpu/lowering.h"
#include "backends/tiles/tile_lowering.h"
#include "backends/tiles/tile_runner.h"
#include "graph/external_values.h"
#include "graph/ops/expert_linear.h"
#include "graph/pass.h"
#include "runtime/interpreter.h"
#include "runtime/rank_runner.h"
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
  const TileCompileOptions compile = {.bounds = options.bounds,
                                      .exact_f32 = options.exact_f32,
                                      .may_use_library = options.batch_invariance != BatchInvariance::kAlways};
  REDLINE_ASSIGN(Program program, compile_tiles(std::move(graph), compile, std::move(device), runtime.team()));
  REDLINE_ASSIGN(StepChoice steps, choose_steps(runtime.step_mode, program));
  return std::unique_ptr<Runner>(std::make_unique<TileRunner>(
      std::move(program), TileRunnerOptions{.steps = std::move(steps),
                                            .hang_seconds = runtime.hang_seconds,
                                            .on_notice = [](const std::string& text) { note_device(text); },
                                            .timeline = runtime.timeline(),
                                            .device_name = device_name(options.device)}));
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

/// Moves the products of a layer's experts to their sum, behind the shared expert, so that the CPU sums what it has
/// multiplied: then one row of a token crosses, not one for each expert that it has chosen.
void move_experts_to_sums(Graph& graph) {
  std::vector<Op>& ops = graph.ops;
  for (size_t sum = 0; sum < ops.size(); ++sum) {
    if (ops[sum].def != &kExpertSum) continue;
    size_t first = sum;  // of the products that have been moved
    for (size_t i = sum; i-- > 0;) {
      if (!is_expert_product(ops[i])) continue;
      const auto reads_it = [&](const Op& op) {
        return std::find(op.inputs.begin(), op.inputs.end(), ops[i].outputs[0]) != op.inputs.end();
      };
      const auto begin = ops.begin() + static_cast<int64_t>(i), end = ops.begin() + static_cast<int64_t>(first);
      if (std::any_of(begin, end, reads_it)) break;  // what lies between needs it
      if (std::none_of(end, ops.begin() + static_cast<int64_t>(sum) + 1, reads_it)) break;  // of another layer
      std::rotate(begin, begin + 1, end);
      --first;
    }
  }
}

/// Returns for each op whether it runs on the device. If any does, the first one does.
std::vector<bool> place_ops(const Graph& graph, const ExecutableOptions& options) {
  std::vector<bool> on_device(graph.ops.size(), options.device.kind != DeviceKind::kCpu);
  if (options.device_layers)
    std::fill(on_device.begin() + static_cast<int64_t>(first_op_of_layer(graph, *options.device_layers)),
              on_device.end(), false);
  // The products of a layer's experts and their sum are neighbours.
  bool is_last = false;
  for (size_t i = 0; options.device_experts && i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    const bool is_expert = is_expert_product(op) || (is_last && op.def == &kExpertSum);
    is_last = op.def == &kExpertLinear;
    if (is_expert && layer_of_op(op.name) >= *options.device_experts) on_device[i] = false;
  }
  return on_device;
}

/// The first part runs on the device, the next on the CPU, and so on.
Result<std::unique_ptr<Runner>> make_split_runner(const Graph& graph, std::span<const size_t> cuts,
                                                  const ExecutableOptions& options, RuntimeResources& runtime) {
  REDLINE_ASSIGN(std::vector<Graph> graphs, split_graph(graph, cuts));
  std::vector<std::unique_ptr<Runner>> parts;
  for (size_t p = 0; p < graphs.size(); ++p) {
    REDLINE_TRY(run_passes(graphs[p]));
    REDLINE_ASSIGN(parts.emplace_back(),
                   (p % 2 == 0 ? make_tile_runner : make_cpu_runner)(graphs[p], options, runtime));
  }
  return std::unique_ptr<Runner>(std::make_unique<SplitRunner>(graphs, std::move(parts)));
}

}  // namespace

bool Executable::Port::is_bound() const { return is_external_name(name); }

Result<Executable> Executable::make(Graph graph, const ExecutableOptions& options, RuntimeResources& runtime) {
  Executable e;
  e.runtime_ = &runtime;
  if (!options.interpret) e.device_ = options.device;
  const auto ports = [&](const std::vector<ValueId>& ids, std::vector<Port>& out) {
    for (const ValueId id : ids) {
      const ValueInfo& value = graph.value(id);
      out.push_back({value.name, value.dtype, value.shape, value.role});
    }
  };
  ports(graph.inputs, e.input_ports_);
  ports(graph.outputs, e.output_ports_);
  e.flops_ = graph.flops();
  const auto groups = rank_groups(graph);
  for (const auto& group : groups) REDLINE_TRY(group->claim(&runtime));
  if (options.interpret) {
    REDLINE_ASSIGN(e.runner_, make_interpreter_runner(std::move(graph), options.bounds));
    if (!groups.empty()) e.runner_ = std::make_unique<RankRunner>(std::move(e.runner_), groups);
    return e;
  }
  std::lock_guard lock(runtime.mutex());
  if (options.device_experts) move_experts_to_sums(graph);
  const std::vector<bool> on_device = place_ops(graph, options);
  std::vector<size_t> cuts;
  for (size_t i = 1; i < on_device.size(); ++i)
    if (on_device[i] != on_device[i - 1]) cuts.push_back(i);
  if (!cuts.empty()) {
    REDLINE_ASSIGN(e.runner_, make_split_runner(graph, cuts, options, runtime));
    if (!groups.empty()) e.runner_ = std::make_unique<RankRunner>(std::move(e.runner_), groups);
    return e;
  }
  REDLINE_TRY(run_passes(graph));
  const bool is_on_device = !on_device.empty() && on_device[0];
  REDLINE_ASSIGN(e.runner_, (is_on_device ? make_tile_runner : make_cpu_runner)(std::move(graph), options, runtime));
  if (!groups.empty()) e.runner_ = std::make_unique<RankRunner>(std::move(e.runner_), groups);
  return e;
}

const Executable::Port* Executable::find(const std::vector<Port>& ports, std::string_view name) {
  const auto at = std::find_if(ports.begin(), ports.end(), [&](const Port& port) { return port.name == name; });
  return at == ports.end() ? nullptr : &*at;
}

const Executable::Port* Executable::find(const std::vector<Port>& ports, PortRole role, size_t number) {
  for (const Port& port : ports)
    if (port.role == role && number-- == 0) return &port;
  return nullptr;
}

int32_t* Executable::input_i32(PortRole role) {
  const Port* port = find(input_ports_, role, 0);
  return port ? input_i32(port->name) : nullptr;
}

float* Executable::input(PortRole role, size_t number) {
  const Port* port = find(input_ports_, role, number);
  return port ? input(port->name) : nullptr;
}

const float* Executable::output(PortRole role, size_t number) const {
  const Port* port = find(output_ports_, role, number);
  return port ? output(port->name) : nullptr;
}

const int32_t* Executable::output_i32(PortRole role) const {
  const Port* port = find(output_ports_, role, 0);
  if (port == nullptr) return nullptr;
  REDLINE_CHECK(port->dtype == DType::kI32);
  return static_cast<const int32_t*>(runner_->host_output(port->name));
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

Result<std::vector<StageTime>> Executable::time_stages(double seconds) {
  std::lock_guard lock(runtime_->mutex());
  return runner_->time_stages(seconds);
}

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
