// f(linear(x)) * linear(x) becomes one gated_linear, if both linears read x in the same layouts or are the halves of
// one; f(linear(x)) becomes one activated_linear.
#include <optional>

#include "graph/ops/activation.h"
#include "graph/ops/gated_linear.h"
#include "graph/ops/linear.h"
#include "graph/ops/silu_mul.h"
#include "graph/pass.h"
#include "graph/passes/op_uses.h"

namespace redline {
namespace {

struct Candidate {
  Activation kind;
  size_t products;
  bool halves = false;  ///< one linear computes both: f applies to the second half, which multiplies the first
};
std::optional<Candidate> candidate(const Op& op) {
  if (op.def == &kSiluMul) return Candidate{Activation::kSilu, 2};
  if (op.def != &kActivation && op.def != &kGatedActivation) return {};
  const auto& attrs = std::any_cast<const ActivationAttrs&>(op.attrs);
  return Candidate{attrs.kind, op.inputs.size(), attrs.halves};
}

/// Rows [begin, begin + rows) of a weight, or elements of a vector, if they are contiguous in the file.
std::optional<ValueInfo> part_of(const ValueInfo& whole, int64_t begin, int64_t rows, std::string_view suffix) {
  const TensorView& view = whole.weight.view;
  const bool is_vector = view.shape.size() == 1;
  if (whole.kind != ValueKind::kWeight || whole.weight.source_row || view.shape.size() > 2 ||
      (is_vector && dtype_info(view.dtype).is_block))
    return {};
  ValueInfo part = whole;
  part.name += suffix;
  part.shape[0] = Dim(rows);
  part.weight.view.shape[0] = rows;
  part.weight.view.data =
      static_cast<const uint8_t*>(view.data) + begin * row_bytes(view.dtype, is_vector ? 1 : view.shape[1]);
  return part;
}

/// Inputs of a gated_linear whose matrices are the two halves of one weight; nullopt if it cannot be split.
std::optional<std::vector<ValueId>> halves_of(Graph& graph, const Op& product) {
  const int64_t rows = graph.value(product.inputs[1]).shape[0].constant() / 2;
  std::vector<ValueInfo> parts;
  for (size_t i = 1; i < product.inputs.size(); ++i)
    for (const auto& [begin, suffix] : {std::pair{rows, ".gate"}, std::pair{int64_t{0}, ".up"}}) {
      auto part = part_of(graph.value(product.inputs[i]), begin, rows, suffix);
      if (!part) return {};
      parts.push_back(std::move(*part));
    }
  std::vector<ValueId> inputs = {product.inputs[0]};
  for (ValueInfo& part : parts) {
    inputs.push_back(static_cast<ValueId>(graph.values.size()));
    graph.values.push_back(std::move(part));
  }
  return inputs;
}

Status fuse_gated_linear(Graph& graph, const Target& target) {
  OpUses uses(graph);
  for (Op& op : graph.ops) {
    const auto made_of = candidate(op);
    if (!made_of) continue;
    Op* gate = uses.only_read_by(op, 0, kLinear);
    Op* up = made_of->products == 2 ? uses.only_read_by(op, 1, kLinear) : gate;
    if (!gate || !up || (made_of->products == 2 && gate == up) || gate->inputs[0] != up->inputs[0]) continue;
    const auto gate_attrs = std::any_cast<LinearAttrs>(gate->attrs), up_attrs = std::any_cast<LinearAttrs>(up->attrs);
    if (gate_attrs.has_residual || up_attrs.has_residual || gate_attrs.has_bias != up_attrs.has_bias) continue;
    auto layouts = [&](const Op& product) { return target.activation_layouts(graph.value(product.inputs[1]).dtype); };
    if (!(layouts(*gate) == layouts(*up))) continue;
    std::vector<ValueId> inputs = gate->inputs;
    GatedLinearAttrs attrs{gate_attrs.has_bias, made_of->kind, {{{gate_attrs.adapters}, {up_attrs.adapters}}}};
    if (made_of->halves) {
      const int64_t half = graph.value(op.outputs[0]).shape[1].constant();
      // Factors are packed by row panels, which the halves must not share.
      if (gate_attrs.adapters && half % target.head_dim_grain() != 0) continue;
      auto halves = halves_of(graph, *gate);
      if (!halves) continue;
      inputs = std::move(*halves);
      attrs.adapters[0].first_feature = half;
    } else if (gate != up) {
      inputs.insert(inputs.begin() + 2, up->inputs[1]);
      if (up_attrs.has_bias) inputs.push_back(up->inputs[2]);
    }
    op = {gate != up || made_of->halves ? &kGatedLinear : &kActivatedLinear, op.name, std::move(inputs), op.outputs,
          std::move(attrs)};
  }
  return remove_dead(graph);
}

}  // namespace

extern const GraphPass kFuseGatedLinear = {
    .name = "fuse_gated_linear", .phase = PassPhase::kTargetFusion, .rewrite_for = fuse_gated_linear};

}  // namespace redline
