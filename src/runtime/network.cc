#include "runtime/network.h"

#include <algorithm>

#include "graph/bound_values.h"
#include "graph/passes/passes.h"

namespace redline {

KvFormat joint_kv_format(const CpuKernels& kernels, bool exact_f32) {
  if (exact_f32) return KvFormat::kF32;
  return kernels.has_tile_unit ? KvFormat::kBF16 : KvFormat::kF16;
}

bool Network::Port::is_bound() const { return is_bound_name(name); }

Result<Network> Network::make(Graph graph, const NetworkOptions& options, WorkerTeam& team) {
  Network network;
  const auto ports = [&](const std::vector<ValueId>& ids, std::vector<Port>& out) {
    for (const ValueId id : ids) out.push_back({graph.value(id).name, graph.value(id).dtype, graph.value(id).shape});
  };
  ports(graph.inputs, network.input_ports_);
  ports(graph.outputs, network.output_ports_);
  network.flops_ = graph.flops();
  if (options.interpret) {
    for (const ValueId id : graph.inputs) {
      const ValueInfo& value = graph.value(id);
      if (is_bound_name(value.name)) continue;
      const auto size = static_cast<size_t>(num_elements(value.shape).eval(options.compile.bounds));
      if (value.dtype == DType::kI32) network.integers_[value.name].resize(size);
      else network.inputs_[value.name].resize(size);
    }
    for (const ValueId id : graph.outputs) network.outputs_[graph.value(id).name];
    REDLINE_ASSIGN(Interpreter interpreter, Interpreter::make(std::move(graph)));
    network.interpreter_ = std::make_unique<Interpreter>(std::move(interpreter));
    return network;
  }
  REDLINE_TRY(run_passes(graph));
  REDLINE_ASSIGN(Program program, compile(std::move(graph), options.compile, team));
  ExecutorOptions executor;
  executor.timeline = options.timeline;
  executor.hang_seconds = options.hang_seconds;
  network.runner_ = std::make_unique<Executor>(std::move(program), team, executor);
  return network;
}

bool Network::find(const std::vector<Port>& ports, std::string_view name) {
  return std::any_of(ports.begin(), ports.end(), [&](const Port& port) { return port.name == name; });
}

float* Network::input(std::string_view name) {
  REDLINE_CHECK(!is_bound_name(name));
  if (!runner_) {
    const auto at = inputs_.find(name);
    REDLINE_CHECK(at != inputs_.end());
    return at->second.data();
  }
  const Program::Port* port = program()->find_input(name);
  REDLINE_CHECK(port && port->dtype == DType::kF32);
  return static_cast<float*>(runner_->host_input(name));
}

int32_t* Network::input_i32(std::string_view name) {
  if (!runner_) {
    const auto at = integers_.find(name);
    REDLINE_CHECK(at != integers_.end());
    return at->second.data();
  }
  const Program::Port* port = program()->find_input(name);
  REDLINE_CHECK(port && port->dtype == DType::kI32);
  return static_cast<int32_t*>(runner_->host_input(name));
}

const float* Network::output(std::string_view name) const {
  if (!runner_) {
    const auto at = outputs_.find(name);
    REDLINE_CHECK(at != outputs_.end());
    return at->second.data();
  }
  const Program::Port* port = program()->find_output(name);
  REDLINE_CHECK(port && port->dtype == DType::kF32);
  return static_cast<const float*>(runner_->host_output(name));
}

void Network::bind(std::string_view name, float* data) {
  if (!runner_) {
    bound_[std::string(name)] = data;
    return;
  }
  REDLINE_CHECK(runner_->bind(name, data));
}

Status Network::run(const SymbolValues& sizes, std::span<const AdapterSegment> adapters) {
  if (runner_) {
    StepContext context;
    context.sizes = sizes;
    context.adapters = adapters;
    return runner_->step(context);
  }
  std::map<std::string, HostTensor> inputs;
  const Graph& graph = interpreter_->graph();
  for (const ValueId id : graph.inputs) {
    const ValueInfo& value = graph.value(id);
    HostTensor tensor;
    for (const Dim& dim : value.shape) tensor.shape.push_back(dim.eval(sizes));
    const auto size = static_cast<size_t>(num_elements(value.shape).eval(sizes));
    if (is_bound_name(value.name)) {
      const float* from = bound_[value.name];
      tensor.data.assign(from, from + size);
      inputs[value.name] = std::move(tensor);
      continue;
    }
    auto fill = [&](const auto& from) -> Status {
      if (size > from.size())
        return invalid_argument("{}: {} elements are above the bound of {}", value.name, size, from.size());
      tensor.data.assign(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(size));
      return {};
    };
    REDLINE_TRY(value.dtype == DType::kI32 ? fill(integers_[value.name]) : fill(inputs_[value.name]));
    inputs[value.name] = std::move(tensor);
  }
  ReferenceCache cache;
  REDLINE_ASSIGN(auto outputs, interpreter_->run(inputs, sizes, cache, adapters));
  for (auto& [name, tensor] : outputs) {
    if (is_bound_name(name)) std::copy(tensor.data.begin(), tensor.data.end(), bound_[name]);
    else outputs_[name].assign(tensor.data.begin(), tensor.data.end());
  }
  return {};
}

}  // namespace redline
