#include "runtime/interpreter.h"

#include "backends/host_memory.h"
#include "graph/external_values.h"

namespace redline {

HostTensor Interpreter::unpack(const ValueInfo& info) {
  HostTensor tensor;
  tensor.shape = info.weight.view.shape;
  const int64_t rows = tensor.rows(), cols = tensor.cols();
  tensor.data.resize(static_cast<size_t>(rows * cols));
  const auto* source = static_cast<const uint8_t*>(info.weight.view.data);
  info.weight.need_all();
  // A vector is one row of elements, or, for row reordering, one element per row.
  const bool by_row = tensor.shape.size() > 1;
  std::vector<float> line(static_cast<size_t>(by_row ? cols : rows));
  if (!by_row) unpack_row(info.dtype, source, line.data(), rows);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t from = info.weight.source_row ? info.weight.source_row(r) : r;
    if (!by_row) {
      tensor.data[static_cast<size_t>(r)] = line[static_cast<size_t>(from)];
      continue;
    }
    unpack_row(info.dtype, source + from * row_bytes(info.dtype, cols), line.data(), cols);
    for (int64_t c = 0; c < cols; ++c) tensor.row(r)[c] = line[static_cast<size_t>(c)];
  }
  return tensor;
}

Result<Interpreter> Interpreter::make(Graph graph) {
  constexpr int64_t kMaxKept = int64_t{2} << 30;
  Interpreter interpreter;
  interpreter.values_.resize(graph.values.size());
  int64_t bytes = 0;
  for (const ValueInfo& info : graph.values)
    if (info.kind == ValueKind::kWeight) bytes += info.weight.view.num_elements() * int64_t{sizeof(double)};
  interpreter.keeps_weights_ = bytes <= kMaxKept;
  for (size_t v = 0; v < graph.values.size() && interpreter.keeps_weights_; ++v)
    if (graph.values[v].kind == ValueKind::kWeight) interpreter.values_[v] = unpack(graph.values[v]);
  interpreter.states_ = plan_states(graph, StateStorage::kReference);
  interpreter.graph_ = std::move(graph);
  return interpreter;
}

Result<std::map<std::string, HostTensor>> Interpreter::run(const std::map<std::string, HostTensor>& inputs,
                                                           const StepContext& step) {
  for (ValueId id : graph_.inputs) {
    auto at = inputs.find(graph_.value(id).name);
    if (at == inputs.end()) return invalid_argument("interpreter: input {} is missing", graph_.value(id).name);
    values_[static_cast<size_t>(id)] = at->second;
  }
  for (const Op& op : graph_.ops) {
    for (ValueId id : op.outputs) {
      HostTensor& out = values_[static_cast<size_t>(id)];
      out.shape.clear();
      for (const Dim& dim : graph_.value(id).shape) out.shape.push_back(dim.eval(step.sizes));
      out.data.assign(static_cast<size_t>(out.rows() * out.cols()), 0.0);
    }
    const auto is_weight = [&](ValueId id) { return graph_.value(id).kind == ValueKind::kWeight; };
    for (ValueId id : op.inputs)
      if (!keeps_weights_ && is_weight(id)) values_[static_cast<size_t>(id)] = unpack(graph_.value(id));
    ReferenceContext context(graph_, states_, op, values_, step);
    REDLINE_TRY(op.def->reference(context).within(op.name));
    for (ValueId id : op.inputs)
      if (!keeps_weights_ && is_weight(id)) values_[static_cast<size_t>(id)] = {};
  }
  std::map<std::string, HostTensor> outputs;
  for (ValueId id : graph_.outputs) outputs[graph_.value(id).name] = values_[static_cast<size_t>(id)];
  return outputs;
}

Result<std::map<std::string, HostTensor>> Interpreter::run(const std::map<std::string, HostTensor>& inputs,
                                                           const SymbolValues& sizes) {
  StepContext step;
  step.sizes = sizes;
  return run(inputs, step);
}

namespace {

class InterpreterRunner final : public Runner {
 public:
  InterpreterRunner(Interpreter interpreter, const SymbolValues& bounds) : interpreter_(std::move(interpreter)) {
    const Graph& graph = interpreter_.graph();
    for (const ValueId id : graph.inputs) {
      const ValueInfo& value = graph.value(id);
      if (is_external_name(value.name)) continue;
      inputs_[value.name].resize(static_cast<size_t>(num_elements(value.shape).eval(bounds)));
    }
    for (const ValueId id : graph.outputs) outputs_[graph.value(id).name];
  }

  const Program* program() const override { return nullptr; }
  const StatePlan& states() const override { return interpreter_.states(); }
  Result<std::unique_ptr<StateMemory>> make_state_memory(std::span<const int64_t> num_pages) const override {
    return make_host_state_memory(states(), num_pages);
  }
  Result<std::unique_ptr<BackendBuffer>> make_buffer(int64_t bytes) const override { return make_host_buffer(bytes); }
  std::string describe() const override { return interpreter_.graph().to_string(); }
  int64_t resident_arena_bytes() const override { return 0; }

  void* host_input(std::string_view name) override {
    const auto at = inputs_.find(name);
    return at == inputs_.end() ? nullptr : at->second.data();
  }
  const void* host_output(std::string_view name) const override {
    const auto at = outputs_.find(name);
    return at == outputs_.end() ? nullptr : at->second.data();
  }
  bool bind(std::string_view name, void* data) override {
    bound_.insert_or_assign(std::string(name), static_cast<float*>(data));
    return true;
  }

  Status step(const StepContext& context) override {
    const Graph& graph = interpreter_.graph();
    std::map<std::string, HostTensor> inputs;
    for (const ValueId id : graph.inputs) {
      const ValueInfo& value = graph.value(id);
      HostTensor& tensor = inputs[value.name];
      for (const Dim& dim : value.shape) tensor.shape.push_back(dim.eval(context.sizes));
      const auto size = static_cast<size_t>(num_elements(value.shape).eval(context.sizes));
      if (is_external_name(value.name)) {
        const float* from = bound_[value.name];
        tensor.data.assign(from, from + size);
        continue;
      }
      const std::vector<Element>& from = inputs_[value.name];
      if (size > from.size())
        return invalid_argument("{}: {} elements are above the bound of {}", value.name, size, from.size());
      for (size_t i = 0; i < size; ++i)
        tensor.data.push_back(value.dtype == DType::kI32 ? from[i].integer : from[i].number);
    }
    REDLINE_ASSIGN(const auto outputs, interpreter_.run(inputs, context));
    for (const ValueId id : graph.outputs) {
      const ValueInfo& value = graph.value(id);
      const std::vector<double>& data = outputs.at(value.name).data;
      if (is_external_name(value.name)) {
        std::copy(data.begin(), data.end(), bound_[value.name]);
        continue;
      }
      std::vector<Element>& to = outputs_[value.name];
      to.resize(data.size());
      for (size_t i = 0; i < data.size(); ++i) {
        if (value.dtype == DType::kI32) to[i].integer = static_cast<int32_t>(data[i]);
        else to[i].number = static_cast<float>(data[i]);
      }
    }
    return {};
  }

 private:
  /// One element of an input or output. Callers write and read it as float32 or int32, by the type of the port.
  union Element {
    float number;
    int32_t integer;
  };
  Interpreter interpreter_;
  std::map<std::string, std::vector<Element>, std::less<>> inputs_;
  std::map<std::string, std::vector<Element>, std::less<>> outputs_;
  std::map<std::string, float*, std::less<>> bound_;
};

}  // namespace

Result<std::unique_ptr<Runner>> make_interpreter_runner(Graph graph, const SymbolValues& bounds) {
  REDLINE_ASSIGN(Interpreter interpreter, Interpreter::make(std::move(graph)));
  return std::unique_ptr<Runner>(new InterpreterRunner(std::move(interpreter), bounds));
}

}  // namespace redline
