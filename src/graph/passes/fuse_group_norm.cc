// conv2d(group_norm(x)), where only the conv2d reads the norm, becomes one conv2d that normalizes image rows as it
// loads them, if the conv2d runs by tiles.
#include "graph/ops/convolution.h"
#include "graph/pass.h"
#include "graph/passes/op_uses.h"

namespace redline {
namespace {

Status fuse_group_norm(Graph& graph, const Target& target) {
  const OpUses uses(graph);
  for (Op& conv : graph.ops) {
    if (conv.def != &kConvolution) continue;
    Op* norm = uses.only_read_by(conv, 0, kGroupNorm);
    auto attrs = std::any_cast<ConvolutionOpAttrs>(conv.attrs);
    if (!norm || attrs.has_norm || !target.fuses_group_norm(graph, conv)) continue;
    attrs.has_norm = true;
    attrs.norm = std::any_cast<const GroupNormOpAttrs&>(norm->attrs).norm;
    conv.attrs = std::move(attrs);
    conv.inputs[0] = norm->inputs[0];
    conv.inputs.insert(conv.inputs.end(), norm->inputs.begin() + 1, norm->inputs.end());
    norm->def = nullptr;
  }
  std::erase_if(graph.ops, [](const Op& op) { return op.def == nullptr; });
  return {};
}

}  // namespace

extern const GraphPass kFuseGroupNorm = {
    .name = "fuse_group_norm", .phase = PassPhase::kTargetFusion, .rewrite_for = fuse_group_norm};

}  // namespace redline
