// Fuses norm and rope of heads into the key packing or joint_attention op that is their only reader: heads are read
// once, one page or block of rows at a time, instead of written and read again for each step.
#include "graph/ops/joint_attention.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/rope.h"
#include "graph/pass.h"
#include "graph/passes/op_uses.h"

namespace redline {
namespace {

/// Input i of `op` as rope(norm(heads)) of projected heads; norm and rope are optional.
struct Found {
  HeadSteps steps;
  Op* rope = nullptr;
  Op* norm = nullptr;
  ValueId heads = -1;
};
Found find_steps(const OpUses& uses, const Graph& graph, const Op& op, size_t i, int64_t head_dim) {
  Found f;
  f.heads = op.inputs[i];
  // Readers are counted per op, so an op that reads a value twice must be excluded here.
  if (std::count(op.inputs.begin(), op.inputs.end(), f.heads) != 1) return f;
  f.rope = uses.only_read_by(op, i, kRope);
  if (f.rope && std::any_cast<RopeAttrs>(f.rope->attrs).head_dim != head_dim) f.rope = nullptr;
  f.norm = f.rope ? uses.only_read_by(*f.rope, 0, kRmsNorm) : uses.only_read_by(op, i, kRmsNorm);
  if (f.norm && !(graph.value(f.norm->inputs[1]).shape[0] == Dim(head_dim))) f.norm = nullptr;
  if (f.norm) f.heads = f.norm->inputs[0];
  else if (f.rope) f.heads = f.rope->inputs[0];
  f.steps = {f.norm != nullptr, f.rope != nullptr, f.norm ? std::any_cast<RmsNormAttrs>(f.norm->attrs).eps : 0};
  return f;
}

/// Makes `op` read the unprocessed heads as input i and appends the inputs of the steps.
void take_over(Op& op, size_t i, const Found& f) {
  op.inputs[i] = f.heads;
  if (f.norm) op.inputs.push_back(f.norm->inputs[1]);
  if (f.rope) op.inputs.push_back(f.rope->inputs[1]);
}

Status fuse_joint_heads(Graph& graph) {
  OpUses uses(graph);
  for (Op& op : graph.ops) {
    if (op.def == &kPackKv) {
      auto a = std::any_cast<PackKvAttrs>(op.attrs);
      if (std::any_of(a.steps.begin(), a.steps.end(), [](const HeadSteps& s) { return s.any(); })) continue;
      for (size_t s = 0; s < a.tokens.size(); ++s) {
        const Found f = find_steps(uses, graph, op, 2 * s, a.head_dim);
        a.steps[s] = f.steps;
        take_over(op, 2 * s, f);
      }
      op.attrs = std::move(a);
    } else if (op.def == &kJointAttention) {
      auto a = std::any_cast<JointAttentionOpAttrs>(op.attrs);
      if (a.steps.any()) continue;
      const Found f = find_steps(uses, graph, op, 0, a.a.head_dim);
      a.steps = f.steps;
      take_over(op, 0, f);
      op.attrs = std::move(a);
    }
  }
  return remove_dead(graph);
}

}  // namespace

extern const GraphPass kFuseJointHeads = {
    .name = "fuse_joint_heads", .phase = PassPhase::kFusion, .rewrite = fuse_joint_heads};

}  // namespace redline
