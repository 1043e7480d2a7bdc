// y = silu(gate) * up with silu(v) = v / (1 + exp(-v)): relative error kExpError plus 4 roundings. Below -88.7 exp(-v)
// overflows and the result is zero, with an absolute error below 1e-36 |up|. -inf gives NaN, as the formula does.
#include "kernels/cpu/activation_functions.h"
#include "kernels/cpu/cpu_kernels.h"

namespace redline::REDLINE_ISA_NS {
namespace {

void silu_mul(const SiluMulArgs& a) {
  for_lanes(a.count, [&](int64_t i, auto lanes) {
    store(a.y + i, silu(load(a.gate + i, lanes)) * load(a.up + i, lanes), lanes);
  });
}

}  // namespace

void fill_silu_mul(CpuKernels& table) { table.silu_mul = silu_mul; }

}  // namespace redline::REDLINE_ISA_NS
