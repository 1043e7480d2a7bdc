// y = a + b, correctly rounded.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

void add(const AddArgs& a) {
  for_lanes(a.count,
            [&](int64_t i, auto lanes) { store(a.y + i, load(a.a + i, lanes) + load(a.b + i, lanes), lanes); });
}

}  // namespace

void fill_add(CpuKernels& table) { table.add = add; }

}  // namespace redline::REDLINE_ISA_NS
