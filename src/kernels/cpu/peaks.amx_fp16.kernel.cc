// The float16 peak of the tile unit (tdpfp16ps). Needs worker_begin() of the amx table.
#include "kernels/cpu/cpu_kernels.h"

namespace redline::REDLINE_ISA_NS {
namespace {

double peak_f16(int64_t iterations) {
  // What the tiles hold when a thread begins is zero: the time of a product does not depend on its values.
  for (int64_t i = 0; i < iterations; ++i) {
    // By their bytes, which assemblers older than the instruction take too.
    asm volatile(
        ".byte 0xc4, 0xe2, 0x4b, 0x5c, 0xc4\n\t"   // tdpfp16ps tmm0, tmm4, tmm6
        ".byte 0xc4, 0xe2, 0x43, 0x5c, 0xcc\n\t"   // tdpfp16ps tmm1, tmm4, tmm7
        ".byte 0xc4, 0xe2, 0x4b, 0x5c, 0xd5\n\t"   // tdpfp16ps tmm2, tmm5, tmm6
        ".byte 0xc4, 0xe2, 0x43, 0x5c, 0xdd" ::);  // tdpfp16ps tmm3, tmm5, tmm7
  }
  return 2.0 * 4 * 16 * 16 * 32 * static_cast<double>(iterations);
}

}  // namespace

void fill_peaks(CpuKernels& table) { table.peak_f16 = peak_f16; }

}  // namespace redline::REDLINE_ISA_NS
