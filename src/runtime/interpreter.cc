#include "runtime/interpreter.h"

namespace redline {

HostTensor Interpreter::unpack(const ValueInfo& info) {
  HostTensor tensor;
  tensor.shape = info.weight.view.shape;
  const int64_t rows = tensor.rows(), cols = tensor.cols();
  tensor.data.resize(static_cast<size_t>(rows * cols));
  const auto* source = static_cast<const uint8_t*>(info.weight.view.data);
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
  interpreter.graph_ = std::move(graph);
  return interpreter;
}

Result<std::map<std::string, HostTensor>> Interpreter::run(const std::map<std::string, HostTensor>& inputs,
                                                           const SymbolValues& sizes, ReferenceCache& cache,
                                                           std::span<const AdapterSegment> adapters) {
  for (ValueId id : graph_.inputs) {
    auto at = inputs.find(graph_.value(id).name);
    if (at == inputs.end()) return invalid_argument("interpreter: input {} is missing", graph_.value(id).name);
    values_[static_cast<size_t>(id)] = at->second;
  }
  for (const Op& op : graph_.ops) {
    for (ValueId id : op.outputs) {
      HostTensor& out = values_[static_cast<size_t>(id)];
      out.shape.clear();
      for (const Dim& dim : graph_.value(id).shape) out.shape.push_back(dim.eval(sizes));
      out.data.assign(static_cast<size_t>(out.rows() * out.cols()), 0.0);
    }
    const auto is_weight = [&](ValueId id) { return graph_.value(id).kind == ValueKind::kWeight; };
    for (ValueId id : op.inputs)
      if (!keeps_weights_ && is_weight(id)) values_[static_cast<size_t>(id)] = unpack(graph_.value(id));
    ReferenceContext context(op, values_, cache, sizes, adapters);
    REDLINE_TRY(op.def->reference(context).within(op.name));
    for (ValueId id : op.inputs)
      if (!keeps_weights_ && is_weight(id)) values_[static_cast<size_t>(id)] = {};
  }
  std::map<std::string, HostTensor> outputs;
  for (ValueId id : graph_.outputs) outputs[graph_.value(id).name] = values_[static_cast<size_t>(id)];
  return outputs;
}

}  // namespace redline
