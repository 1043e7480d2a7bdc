#include "graph/ops/gated_linear.h"

#include "graph/ops/activation.h"
#include "graph/ops/linear.h"
#include "graph/reference.h"

namespace redline {
namespace {

template <int kMatrices>
Status gated_linear_reference(ReferenceContext& c) {
  const HostTensor& x = c.in(0);
  const auto& attrs = c.attrs<GatedLinearAttrs>();
  HostTensor products[kMatrices];
  for (size_t i = 0; i < kMatrices; ++i) {
    products[i] = c.out();
    linear_reference(x, c.in(1 + i), attrs.has_bias ? &c.in(1 + kMatrices + i) : nullptr, products[i]);
    add_adapters_reference(c, attrs.adapters[i].site.get(), x, products[i], attrs.adapters[i].first_feature);
  }
  for (size_t i = 0; i < c.out().data.size(); ++i) {
    const double value = activation_of(attrs.activation, products[0].data[i]);
    c.out().data[i] = kMatrices == 1 ? value : value * products[kMatrices - 1].data[i];
  }
  return {};
}

std::string describe_gated_linear(const std::any& any) {
  const auto& attrs = std::any_cast<const GatedLinearAttrs&>(any);
  return fmt::format("{}{}{}", activation_name(attrs.activation), attrs.has_bias ? ", +bias" : "",
                     attrs.adapters[0].site || attrs.adapters[1].site ? ", +adapters" : "");
}

Dim gated_linear_flops(const Graph& graph, const Op& op) {
  const ValueInfo& weight = graph.value(op.inputs[1]);
  return graph.value(op.inputs[0]).shape[0] * weight.shape[0] * weight.shape[1] * Dim(2 * op.def->num_matrices);
}

}  // namespace

const OpDef kGatedLinear = {.name = "gated_linear",
                            .reference = gated_linear_reference<2>,
                            .describe = describe_gated_linear,
                            .num_matrices = 2,
                            .prepares_output = true,
                            .flops = gated_linear_flops};

const OpDef kActivatedLinear = {.name = "activated_linear",
                                .reference = gated_linear_reference<1>,
                                .describe = describe_gated_linear,
                                .num_matrices = 1,
                                .prepares_output = true,
                                .flops = gated_linear_flops};

}  // namespace redline
