// add(r, linear(x)), where only the add reads the linear, becomes linear(x) + r in the linear's epilogue: one pass
// less over the hidden state. The same for convolution.
#include <map>

#include "graph/ops/add.h"
#include "graph/ops/convolution.h"
#include "graph/ops/linear.h"
#include "graph/pass.h"

namespace redline {
namespace {

/// False if `op` does not support a residual or already has one.
template <class Attrs>
bool give_residual(Op& op, ValueId residual) {
  auto attrs = std::any_cast<Attrs>(op.attrs);
  if (attrs.has_residual) return false;
  attrs.has_residual = true;
  op.attrs = std::move(attrs);
  op.inputs.push_back(residual);
  return true;
}

Status fuse_residual(Graph& graph) {
  const auto readers = graph.readers();
  std::map<ValueId, size_t> producer;
  for (size_t i = 0; i < graph.ops.size(); ++i) producer[graph.ops[i].outputs[0]] = i;
  std::vector<bool> gone(graph.ops.size(), false);
  std::vector<bool> is_output(graph.values.size(), false);
  for (ValueId id : graph.outputs) is_output[static_cast<size_t>(id)] = true;

  for (size_t i = 0; i < graph.ops.size(); ++i) {
    Op& sum = graph.ops[i];
    if (sum.def != &kAdd) continue;
    // The operand computed last is the one that can take the other as its residual.
    for (int side : {1, 0}) {
      const ValueId product = sum.inputs[static_cast<size_t>(side)],
                    residual = sum.inputs[static_cast<size_t>(1 - side)];
      auto at = producer.find(product);
      if (at == producer.end() || product == residual || readers[static_cast<size_t>(product)].size() != 1 ||
          is_output[static_cast<size_t>(product)])
        continue;
      Op& maker = graph.ops[at->second];
      auto made = producer.find(residual);
      if (made != producer.end() && made->second > at->second) continue;
      const bool given = maker.def == &kLinear        ? give_residual<LinearAttrs>(maker, residual)
                         : maker.def == &kConvolution ? give_residual<ConvolutionOpAttrs>(maker, residual)
                                                      : false;
      if (!given) continue;
      maker.outputs = sum.outputs;
      producer[sum.outputs[0]] = at->second;
      gone[i] = true;
      break;
    }
  }
  std::vector<Op> kept;
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (!gone[i]) kept.push_back(std::move(graph.ops[i]));
  graph.ops = std::move(kept);
  return {};
}

}  // namespace

extern const GraphPass kFuseResidual = {.name = "fuse_residual", .phase = PassPhase::kFusion, .rewrite = fuse_residual};

}  // namespace redline
