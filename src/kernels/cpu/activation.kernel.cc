// Pointwise functions over rows.
#include "kernels/cpu/activation_functions.h"
#include "kernels/cpu/cpu_kernels.h"

namespace redline::REDLINE_ISA_NS {
namespace {

template <class F>
REDLINE_INLINE void each(const ActivationArgs& a, const F& f) {
  for (int64_t row = 0; row < a.rows; ++row) {
    const float* x = a.x + row * a.x_stride;
    float* y = a.y + row * a.y_stride;
    if (!a.up) {
      for_lanes(a.cols, [&](int64_t i, auto lanes) { store(y + i, f(load(x + i, lanes)), lanes); });
      continue;
    }
    const float* up = a.up + row * a.up_stride;
    for_lanes(a.cols, [&](int64_t i, auto lanes) { store(y + i, f(load(x + i, lanes)) * load(up + i, lanes), lanes); });
  }
}

void activation(const ActivationArgs& a) {
  with_activation(a.kind, [&](const auto& f) { each(a, f); });
}

}  // namespace

void fill_activation(CpuKernels& table) { table.activation = activation; }

}  // namespace redline::REDLINE_ISA_NS
