// Three linears of the same x, norm and rope of their heads, and kv_append become one qkv, if the linears read x in
// the same layouts and heads are whole row panels.
#include "graph/ops/attention.h"
#include "graph/ops/kv_append.h"
#include "graph/ops/linear.h"
#include "graph/ops/qkv.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/rope.h"
#include "graph/pass.h"
#include "graph/passes/op_uses.h"

namespace redline {
namespace {

/// rope(norm(linear(x))), the norm optional.
struct RotatedHeads {
  Op* rope = nullptr;
  Op* norm = nullptr;
  Op* linear = nullptr;
};
RotatedHeads rotated_heads(const OpUses& uses, const Op& reader, size_t i, const Graph& graph, int64_t head_dim) {
  RotatedHeads r;
  r.rope = uses.only_read_by(reader, i, kRope);
  if (!r.rope || std::any_cast<RopeAttrs>(r.rope->attrs).head_dim != head_dim) return {};
  r.norm = uses.only_read_by(*r.rope, 0, kRmsNorm);
  if (r.norm && !(graph.value(r.norm->inputs[1]).shape[0] == Dim(head_dim))) return {};
  r.linear = uses.only_read_by(r.norm ? *r.norm : *r.rope, 0, kLinear);
  return r;
}

Status fuse_qkv(Graph& graph, const Target& target) {
  OpUses uses(graph);
  for (Op& append : graph.ops) {
    if (append.def != &kKvAppend) continue;
    const StateAttrs kv = graph.value(append.inputs[2]).state;
    if (kv.head_dim % target.head_dim_grain() != 0) continue;  // a head would begin inside a row panel
    Op* attention = uses.only_reader(append.outputs[0]);
    if (!attention || attention->def != &kAttention) continue;
    const RotatedHeads q = rotated_heads(uses, *attention, 0, graph, kv.head_dim);
    const RotatedHeads k = rotated_heads(uses, append, 0, graph, kv.head_dim);
    Op* v = uses.only_read_by(append, 1, kLinear);
    if (!q.linear || !k.linear || !v || q.rope->inputs[1] != k.rope->inputs[1]) continue;

    Op* const products[] = {q.linear, k.linear, v};
    auto attrs_of = [](const Op* product) { return std::any_cast<LinearAttrs>(product->attrs); };
    auto forms_of = [&](const Op* product) { return target.activation_layouts(graph.value(product->inputs[1]).dtype); };
    bool agree = true;
    for (const Op* product : products)
      agree = agree && product->inputs[0] == v->inputs[0] && !attrs_of(product).has_residual &&
              attrs_of(product).has_bias == attrs_of(v).has_bias && forms_of(product) == forms_of(v);
    if (!agree) continue;

    QkvAttrs a;
    a.num_heads = graph.value(attention->inputs[0]).shape[1].constant() / kv.head_dim;
    a.num_kv_heads = kv.num_heads;
    a.head_dim = kv.head_dim;
    a.has_bias = attrs_of(v).has_bias;
    a.has_q_norm = q.norm != nullptr;
    a.has_k_norm = k.norm != nullptr;
    for (size_t i = 0; i < 3; ++i) a.adapters[i] = attrs_of(products[i]).adapters;
    std::vector<ValueId> inputs = {v->inputs[0]};
    for (const Op* product : products) inputs.push_back(product->inputs[1]);
    if (a.has_bias)
      for (const Op* product : products) inputs.push_back(product->inputs[2]);
    if (q.norm) inputs.push_back(q.norm->inputs[1]), a.q_norm_eps = std::any_cast<RmsNormAttrs>(q.norm->attrs).eps;
    if (k.norm) inputs.push_back(k.norm->inputs[1]), a.k_norm_eps = std::any_cast<RmsNormAttrs>(k.norm->attrs).eps;
    inputs.insert(inputs.end(), {q.rope->inputs[1], append.inputs[2]});
    // The fused op takes the place of kv_append: all its inputs are computed by then, and attention comes later.
    append = {&kQkv, append.name, std::move(inputs), {attention->inputs[0], append.outputs[0]}, a};
    q.rope->outputs.clear();  // now dead
  }
  return remove_dead(graph);
}

}  // namespace

extern const GraphPass kFuseQkv = {.name = "fuse_qkv", .phase = PassPhase::kTargetFusion, .rewrite_for = fuse_qkv};

}  // namespace redline
