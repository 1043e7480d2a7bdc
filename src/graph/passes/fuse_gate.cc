// gated_add(a, linear(x), table), where only the gated_add reads the linear, becomes one linear whose epilogue
// multiplies by the item's row of the table and adds a.
#include "graph/ops/gated_add.h"
#include "graph/ops/linear.h"
#include "graph/pass.h"
#include "graph/passes/op_uses.h"

namespace redline {
namespace {

Status fuse_gate(Graph& graph) {
  const OpUses uses(graph);
  for (Op& sum : graph.ops) {
    if (sum.def != &kGatedAdd) continue;
    const ValueId a = sum.inputs[0], b = sum.inputs[1], table = sum.inputs[2];
    Op* product = uses.only_read_by(sum, 1, kLinear);
    if (!product || a == b || table == b) continue;
    auto attrs = std::any_cast<LinearAttrs>(product->attrs);
    if (attrs.has_residual) continue;
    const auto& gate = std::any_cast<const GatedAddAttrs&>(sum.attrs);
    attrs.has_residual = attrs.has_gate = true;
    attrs.gate_column = gate.column;
    attrs.rows_per_item = gate.rows_per_item;
    // The fused op takes the place of the sum, where a and the table are already computed.
    sum.def = &kLinear;
    sum.name = product->name;
    sum.inputs = std::move(product->inputs);
    sum.inputs.insert(sum.inputs.end(), {a, table});
    sum.attrs = std::move(attrs);
    product->def = nullptr;
  }
  std::erase_if(graph.ops, [](const Op& op) { return op.def == nullptr; });
  return {};
}

}  // namespace

extern const GraphPass kFuseGate = {.name = "fuse_gate", .phase = PassPhase::kFusion, .rewrite = fuse_gate};

}  // namespace redline
