// y = a + gate * b. Product and sum round separately, as in the epilogue of linear kernels (linear_finish.h), so that
// fusion does not change results.
#include "kernels/cpu/gated_add.h"

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

void gated_add(const GatedAddArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* a = args.a + row * args.cols;
    const float* b = args.b + row * args.cols;
    float* y = args.y + row * args.cols;
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      store(y + i, load(a + i, lanes) + load(args.gate + i, lanes) * load(b + i, lanes), lanes);
    });
  }
}

}  // namespace

void fill_gated_add(CpuKernels& table) { table.gated_add = gated_add; }

}  // namespace redline::REDLINE_ISA_NS
