#include "graph/ops/gated_linear.h"
#include "graph/ops/linear.h"
#include "graph/ops/silu_mul.h"
#include "graph/passes/op_uses.h"
#include "graph/passes/passes.h"

namespace redline {

Status fuse_gated_linear(Graph& graph, const CpuKernels& kernels, bool exact_f32) {
  OpUses uses(graph);
  for (Op& op : graph.ops) {
    if (op.def != &kSiluMul) continue;
    Op* gate = uses.only_read_by(op, 0, kLinear);
    Op* up = uses.only_read_by(op, 1, kLinear);
    if (!gate || !up || gate == up || gate->inputs[0] != up->inputs[0]) continue;
    const auto gate_attrs = std::any_cast<LinearAttrs>(gate->attrs), up_attrs = std::any_cast<LinearAttrs>(up->attrs);
    if (gate_attrs.has_residual || up_attrs.has_residual || gate_attrs.has_bias != up_attrs.has_bias) continue;
    auto forms = [&](const Op& product) {
      return choose_linear(kernels, graph.value(product.inputs[1]).dtype, exact_f32).forms;
    };
    if (!(forms(*gate) == forms(*up))) continue;
    std::vector<ValueId> inputs = {gate->inputs[0], gate->inputs[1], up->inputs[1]};
    if (gate_attrs.has_bias) inputs.insert(inputs.end(), {gate->inputs[2], up->inputs[2]});
    op = {&kGatedLinear, op.name, std::move(inputs), op.outputs, GatedLinearAttrs{gate_attrs.has_bias}};
  }
  return remove_dead(graph);
}

}  // namespace redline
