// bfloat16 peak of vdpbf16ps.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/peak_loops.h"

namespace redline::REDLINE_ISA_NS {
namespace {

double peak_bf16(int64_t iterations) { return peak_bf16_loop(iterations); }

}  // namespace

void fill_peaks(CpuKernels& table) { table.peak_bf16 = peak_bf16; }

}  // namespace redline::REDLINE_ISA_NS
