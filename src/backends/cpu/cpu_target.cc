#include "backends/cpu/cpu_target.h"

#include "graph/ops/convolution.h"

namespace redline {

std::string CpuTarget::name() const { return fmt::format("cpu/{}", cpu_isa_in_use()); }

ActivationLayouts CpuTarget::activation_layouts(DType weight) const {
  return choose_linear(kernels_, weight, exact_f32_, batch_invariance_).layouts;
}

bool CpuTarget::fuses_group_norm(const Graph& graph, const Op& conv) const {
  const ConvMethod method = choose_conv_method(kernels_, exact_f32_, graph, conv);
  const bool has_items = std::any_cast<const ConvolutionOpAttrs&>(conv.attrs).axes.size() == 2;
  return has_items && (method == ConvMethod::kBf16 || method == ConvMethod::kF32);
}

}  // namespace redline
