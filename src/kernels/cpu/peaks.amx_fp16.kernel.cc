// The float16 peak of the tile unit (tdpfp16ps). Needs worker_begin() of the amx table.
#include "kernels/cpu/cpu_kernels.h"

namespace redline::REDLINE_ISA_NS {
namespace {

double peak_f16(int64_t iterations) {
  // What the tiles hold when a thread begins is zero: the time of a product does not depend on its values.
  for (int64_t i = 0; i < iterations; ++i) {
    asm volatile(
        "tdpfp16ps %%tmm6, %%tmm4, %%tmm0\n\t"
        "tdpfp16ps %%tmm7, %%tmm4, %%tmm1\n\t"
        "tdpfp16ps %%tmm6, %%tmm5, %%tmm2\n\t"
        "tdpfp16ps %%tmm7, %%tmm5, %%tmm3" ::);
  }
  return 2.0 * 4 * 16 * 16 * 32 * static_cast<double>(iterations);
}

}  // namespace

void fill_peaks(CpuKernels& table) { table.peak_f16 = peak_f16; }

}  // namespace redline::REDLINE_ISA_NS
