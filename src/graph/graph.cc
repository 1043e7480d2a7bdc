#include "graph/graph.h"

#include <algorithm>

namespace redline {

void WeightSource::need_rows(int64_t begin, int64_t count) const {
  if (!file || view.shape.empty() || view.shape[0] == 0) return;
  const int64_t row = view.bytes() / view.shape[0];
  const int64_t at = static_cast<const uint8_t*>(view.data) - file->data();
  if (!source_row) return file->need(at + begin * row, count * row);
  for (int64_t n = begin; n < begin + count; ++n) file->need(at + source_row(n) * row, row);
}

void WeightSource::need_all() const {
  if (source_row && !view.shape.empty()) return need_rows(0, view.shape[0]);
  if (file) file->need(static_cast<const uint8_t*>(view.data) - file->data(), view.bytes());
}

ValueId Graph::find_input(std::string_view input_name) const {
  for (ValueId id : inputs)
    if (value(id).name == input_name) return id;
  return -1;
}

ValueId Graph::find_output(PortRole role) const {
  for (ValueId id : outputs)
    if (value(id).role == role) return id;
  return -1;
}

std::vector<std::vector<int>> Graph::readers() const {
  std::vector<std::vector<int>> result(values.size());
  for (size_t i = 0; i < ops.size(); ++i)
    for (ValueId id : ops[i].inputs) {
      auto& list = result[static_cast<size_t>(id)];
      if (list.empty() || list.back() != static_cast<int>(i)) list.push_back(static_cast<int>(i));
    }
  return result;
}

Status Graph::check() const {
  std::vector<bool> defined(values.size(), false);
  for (size_t v = 0; v < values.size(); ++v) defined[v] = values[v].kind != ValueKind::kComputed;
  auto known = [&](ValueId id) { return id >= 0 && static_cast<size_t>(id) < values.size(); };
  for (const Op& op : ops) {
    for (ValueId id : op.inputs)
      if (!known(id) || !defined[static_cast<size_t>(id)])
        return internal("graph {}: op {} reads value {} before it is made", name, op.name, id);
    for (ValueId id : op.outputs) {
      if (!known(id) || defined[static_cast<size_t>(id)])
        return internal("graph {}: op {} makes value {} a second time", name, op.name, id);
      defined[static_cast<size_t>(id)] = true;
    }
  }
  for (ValueId id : outputs)
    if (!known(id) || !defined[static_cast<size_t>(id)]) return internal("graph {}: output {} is never made", name, id);
  return {};
}

Dim Graph::flops() const {
  Dim sum = 0;
  for (const Op& op : ops)
    if (op.def->flops) sum = sum + op.def->flops(*this, op);
  return sum;
}

std::string Graph::to_string() const {
  std::string text = fmt::format("graph {}\n", name);
  auto spell = [&](ValueId id) {
    const ValueInfo& v = value(id);
    return fmt::format("%{} {}{}", id, dtype_info(v.dtype).name, redline::to_string(v.shape));
  };
  for (ValueId id : inputs) text += fmt::format("  input {} = {}\n", value(id).name, spell(id));
  for (const Op& op : ops) {
    std::string inputs_text;
    constexpr size_t kMaxInputs = 12;  // an op of a mixture of experts has a matrix of each
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const ValueId id = op.inputs[i];
      if (i == kMaxInputs) {
        inputs_text += fmt::format(", {} more", op.inputs.size() - i);
        break;
      }
      inputs_text +=
          (inputs_text.empty() ? "" : ", ") +
          (value(id).kind == ValueKind::kWeight ? fmt::format("{}:{}", value(id).name, dtype_info(value(id).dtype).name)
           : value(id).kind == ValueKind::kState ? value(id).name
                                                 : fmt::format("%{}", id));
    }
    const std::string attrs = op.def->describe ? op.def->describe(op.attrs) : "";
    text += fmt::format("  {} = {}({}){}{}  // {}\n", spell(op.outputs.at(0)), op.def->name, inputs_text,
                        attrs.empty() ? "" : " ", attrs, op.name);
  }
  for (ValueId id : outputs) text += fmt::format("  output %{} {}\n", id, value(id).name);
  return text;
}

Value GraphBuilder::input(std::string name, DType dtype, Shape shape, PortRole role) {
  graph_.values.push_back({std::move(name), dtype, std::move(shape), ValueKind::kInput, {}});
  graph_.values.back().role = role;
  graph_.inputs.push_back(static_cast<ValueId>(graph_.values.size()) - 1);
  return {graph_.inputs.back()};
}

Value GraphBuilder::weight(std::string name, WeightSource source) {
  Shape shape(source.view.shape.begin(), source.view.shape.end());
  const DType dtype = source.view.dtype;
  graph_.values.push_back({std::move(name), dtype, std::move(shape), ValueKind::kWeight, std::move(source)});
  return {static_cast<ValueId>(graph_.values.size()) - 1};
}

Value GraphBuilder::state(std::string name, const StateAttrs& attrs) {
  ValueInfo value;
  value.name = std::move(name);
  value.kind = ValueKind::kState;
  value.state = attrs;
  graph_.values.push_back(std::move(value));
  return {static_cast<ValueId>(graph_.values.size()) - 1};
}

void GraphBuilder::output(std::string name, Value value, PortRole role) {
  if (!value.valid()) return;
  graph_.values[static_cast<size_t>(value.id)].name = std::move(name);
  graph_.values[static_cast<size_t>(value.id)].role = role;
  graph_.outputs.push_back(value.id);
}

Value GraphBuilder::add(const OpDef& def, const std::vector<Value>& inputs, DType dtype, Shape shape, std::any attrs) {
  Op op;
  op.def = &def;
  for (Value v : inputs) {
    if (!v.valid()) return fail(internal("{}: an input is missing", def.name));
    op.inputs.push_back(v.id);
    if (info(v).weight.columns && !def.takes_columns)
      return fail(unsupported("tensor {}: its columns are in another order (act-order), which {} does not read",
                              info(v).name, def.name));
  }
  op.name = scope_.empty() ? std::string(def.name) : fmt::format("{}.{}", scope_, def.name);
  op.attrs = std::move(attrs);
  graph_.values.push_back({op.name, dtype, std::move(shape), ValueKind::kComputed, {}});
  const ValueId id = static_cast<ValueId>(graph_.values.size()) - 1;
  op.outputs.push_back(id);
  graph_.ops.push_back(std::move(op));
  return {id};
}

Value GraphBuilder::add_output(Value first, std::string_view part, DType dtype, Shape shape) {
  if (!first.valid()) return {};
  Op& op = graph_.ops.back();
  REDLINE_CHECK(op.outputs.front() == first.id);
  graph_.values.push_back({fmt::format("{}.{}", op.name, part), dtype, std::move(shape), ValueKind::kComputed, {}});
  op.outputs.push_back(static_cast<ValueId>(graph_.values.size()) - 1);
  return {op.outputs.back()};
}

Value GraphBuilder::find(const OpDef& def, Value x, const std::function<bool(const std::any&)>& is_same) const {
  for (auto op = graph_.ops.rbegin(); op != graph_.ops.rend(); ++op) {
    if (op->def == &def && op->inputs == std::vector{x.id} && is_same(op->attrs)) return {op->outputs.front()};
    if (op->outputs.front() == x.id) break;  // what reads x comes after it
  }
  return {};
}

const Op* GraphBuilder::producer(Value value) const {
  for (auto op = graph_.ops.rbegin(); op != graph_.ops.rend(); ++op)
    if (std::find(op->outputs.begin(), op->outputs.end(), value.id) != op->outputs.end()) return &*op;
  return nullptr;
}

Value GraphBuilder::fail(Status status) {
  if (status_.ok()) status_ = scope_.empty() ? std::move(status) : std::move(status).within(scope_);
  return {};
}

Result<Graph> GraphBuilder::finish() {
  REDLINE_TRY(status_);
  REDLINE_TRY(graph_.check());
  return std::move(graph_);
}

}  // namespace redline
