#include "backends/cpu/cpu_target.h"

#include "graph/ops/conv2d.h"

namespace redline {

std::string CpuTarget::name() const { return fmt::format("cpu/{}", cpu_isa_in_use()); }

ActivationLayouts CpuTarget::activation_layouts(DType weight) const {
  return choose_linear(kernels_, weight, exact_f32_, batch_invariance_).layouts;
}

bool CpuTarget::fuses_group_norm(const Graph& graph, const Op& conv) const {
  return choose_conv_method(kernels_, exact_f32_, graph.value(conv.inputs[1]).dtype,
                            graph.value(conv.inputs[0]).shape[1].constant(),
                            std::any_cast<const Conv2dOpAttrs&>(conv.attrs).kernel) != ConvMethod::kPatches;
}

}  // namespace redline
