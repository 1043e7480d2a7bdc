// Two stages: x down^T tiled by rows, then up tiled by columns. The type of the down matrix is chosen so that its
// kernels read x in the layouts of the base linear, so x is prepared once.
#include "graph/ops/low_rank.h"

#include "graph/ops/conv2d.h"
#include "graph/ops/linear.h"
#include "graph/reference.h"

namespace redline {
namespace {

Status reference(ReferenceContext& c) {
  const HostTensor &x = c.in(0), &y = c.in(2);
  const AdapterSlot& slot = *c.attrs<LowRankAttrs>().slot;
  c.out().data = y.data;
  for (const AdapterPart& part : slot.parts) {
    for (int64_t m = 0; m < x.rows(); ++m)
      for (int64_t r = 0; r < part.rank; ++r) {
        double t = 0;
        for (int64_t k = 0; k < slot.in_features; ++k)
          t += x.row(m)[k] * static_cast<double>(part.plain_down[r * slot.in_features + k]);
        t *= static_cast<double>(part.scale);
        for (int64_t n = 0; n < slot.out_features; ++n)
          c.out().row(m)[n] += t * static_cast<double>(part.plain_up[n * part.rank + r]);
      }
  }
  return {};
}

std::string describe(const std::any& any) {
  return fmt::format("rank up to {}", std::any_cast<const LowRankAttrs&>(any).slot->max_rank);
}

}  // namespace

const OpDef kLowRank = {.name = "low_rank", .reference = reference, .describe = describe, .num_matrices = 1};

AdapterSlots add_adapter_slots(Graph& graph, int64_t max_rank, const std::function<bool(const std::string&)>& wanted) {
  AdapterSlots slots;
  std::vector<Op> ops;
  for (Op& op : graph.ops) {
    ops.push_back(std::move(op));
    Op& product = ops.back();
    const bool is_conv = product.def == &kConv2d;
    if ((product.def != &kLinear && !is_conv) || !wanted(graph.value(product.inputs[1]).name)) continue;
    const ValueInfo weight = graph.value(product.inputs[1]);
    auto slot = std::make_shared<AdapterSlot>();
    slot->weight = weight.name;
    slot->out_features = weight.shape[0].constant();
    slot->in_features = num_elements(weight.shape).constant() / slot->out_features;
    slot->max_rank = max_rank;
    slot->source_row = weight.weight.source_row;
    if (is_conv) {
      auto attrs = std::any_cast<Conv2dOpAttrs>(product.attrs);
      slot->kernel = attrs.kernel;
      attrs.adapter = slot;
      product.attrs = std::move(attrs);
      slots.push_back(std::move(slot));
      continue;
    }
    const auto add_value = [&](Shape shape, const char* suffix) {
      ValueInfo info;
      info.name = product.name + suffix;
      info.shape = std::move(shape);
      graph.values.push_back(std::move(info));
      return static_cast<ValueId>(graph.values.size()) - 1;
    };
    // The linear writes a new value; all readers use the sum.
    const ValueId sum = product.outputs[0];
    const Shape shape = graph.value(sum).shape;
    product.outputs[0] = add_value(shape, ".base");
    const ValueId inner = add_value({shape[0], Dim(max_rank)}, ".low_rank");
    ops.push_back({&kLowRank,
                   product.name + ".adapter",
                   {product.inputs[0], product.inputs[1], product.outputs[0]},
                   {sum, inner},
                   LowRankAttrs{slot}});
    slots.push_back(std::move(slot));
  }
  graph.ops = std::move(ops);
  return slots;
}

}  // namespace redline
