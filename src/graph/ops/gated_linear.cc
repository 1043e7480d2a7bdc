#include "graph/ops/gated_linear.h"

#include "graph/ops/activation.h"
#include "graph/ops/linear.h"
#include "graph/reference.h"

namespace redline {
namespace {

template <int kMatrices>
Status reference(ReferenceContext& c) {
  const HostTensor& x = c.in(0);
  const auto& attrs = c.attrs<GatedLinearAttrs>();
  auto product = [&](size_t matrix, int64_t m, int64_t n) {
    const HostTensor& weight = c.in(1 + matrix);
    double sum = attrs.has_bias ? c.in(1 + kMatrices + matrix).data[static_cast<size_t>(n)] : 0.0;
    for (int64_t k = 0; k < x.cols(); ++k) sum += x.row(m)[k] * weight.row(n)[k];
    return sum;
  };
  for (int64_t m = 0; m < x.rows(); ++m)
    for (int64_t n = 0; n < c.out().cols(); ++n) {
      const double value = activation_of(attrs.activation, product(0, m, n));
      c.out().row(m)[n] = kMatrices == 1 ? value : value * product(1, m, n);
    }
  return {};
}

std::string describe(const std::any& any) {
  const auto& attrs = std::any_cast<const GatedLinearAttrs&>(any);
  return fmt::format("{}{}", activation_name(attrs.activation), attrs.has_bias ? ", +bias" : "");
}

Dim flops(const Graph& graph, const Op& op) {
  const ValueInfo& weight = graph.value(op.inputs[1]);
  return graph.value(op.inputs[0]).shape[0] * weight.shape[0] * weight.shape[1] * Dim(2 * op.def->num_matrices);
}

}  // namespace

const OpDef kGatedLinear = {.name = "gated_linear",
                            .reference = reference<2>,
                            .describe = describe,
                            .num_matrices = 2,
                            .prepares_output = true,
                            .flops = flops};

const OpDef kActivatedLinear = {.name = "activated_linear",
                                .reference = reference<1>,
                                .describe = describe,
                                .num_matrices = 1,
                                .prepares_output = true,
                                .flops = flops};

}  // namespace redline
