// Soft cap of logits.
#include "kernels/cpu/attention/attention_soft_cap.h"
#include "kernels/cpu/cpu_kernels.h"

namespace redline::REDLINE_ISA_NS {
namespace {

void soft_cap_all(const SoftCapArgs& a) {
  const VecF32 cap = set1(a.cap), inverse = set1(1.0f / a.cap);
  for_lanes(a.count,
            [&](int64_t i, auto lanes) { store(a.y + i, soft_cap(load(a.x + i, lanes), cap, inverse), lanes); });
}

}  // namespace

void fill_soft_cap(CpuKernels& table) { table.soft_cap = soft_cap_all; }

}  // namespace redline::REDLINE_ISA_NS
