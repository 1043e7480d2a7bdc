#include <optional>

#include "graph/ops/activation.h"
#include "graph/ops/gated_linear.h"
#include "graph/ops/linear.h"
#include "graph/ops/silu_mul.h"
#include "graph/passes/op_uses.h"
#include "graph/passes/passes.h"

namespace redline {
namespace {

struct Candidate {
  Activation kind;
  size_t products;
};
std::optional<Candidate> candidate(const Op& op) {
  if (op.def == &kSiluMul) return Candidate{Activation::kSilu, 2};
  if (op.def != &kActivation && op.def != &kGatedActivation) return {};
  const auto& attrs = std::any_cast<const ActivationAttrs&>(op.attrs);
  if (attrs.halves) return {};
  return Candidate{attrs.kind, op.inputs.size()};
}

}  // namespace

Status fuse_gated_linear(Graph& graph, const CpuKernels& kernels, bool exact_f32) {
  OpUses uses(graph);
  for (Op& op : graph.ops) {
    const auto made_of = candidate(op);
    if (!made_of) continue;
    Op* gate = uses.only_read_by(op, 0, kLinear);
    Op* up = made_of->products == 2 ? uses.only_read_by(op, 1, kLinear) : gate;
    if (!gate || !up || (made_of->products == 2 && gate == up) || gate->inputs[0] != up->inputs[0]) continue;
    const auto gate_attrs = std::any_cast<LinearAttrs>(gate->attrs), up_attrs = std::any_cast<LinearAttrs>(up->attrs);
    if (gate_attrs.has_residual || up_attrs.has_residual || gate_attrs.has_bias != up_attrs.has_bias) continue;
    auto forms = [&](const Op& product) {
      return choose_linear(kernels, graph.value(product.inputs[1]).dtype, exact_f32).forms;
    };
    if (!(forms(*gate) == forms(*up))) continue;
    std::vector<ValueId> inputs = gate->inputs;
    if (gate != up) {
      inputs.insert(inputs.begin() + 2, up->inputs[1]);
      if (up_attrs.has_bias) inputs.push_back(up->inputs[2]);
    }
    op = {gate != up ? &kGatedLinear : &kActivatedLinear, op.name, std::move(inputs), op.outputs,
          GatedLinearAttrs{gate_attrs.has_bias, made_of->kind}};
  }
  return remove_dead(graph);
}

}  // namespace redline
