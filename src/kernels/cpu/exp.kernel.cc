// y = e^x, the same function as in other kernels (method and error bound: simd.h).
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

void exp_rows(const ExpArgs& a) {
  for_lanes(a.count, [&](int64_t i, auto lanes) { store(a.y + i, exp(load(a.x + i, lanes)), lanes); });
}

}  // namespace

void fill_exp(CpuKernels& table) { table.exp = exp_rows; }

}  // namespace redline::REDLINE_ISA_NS
