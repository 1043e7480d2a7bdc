// int8 peak of vpdpbusd in 256 bits.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/peak_loops.h"

namespace redline::REDLINE_ISA_NS {
namespace {

double peak_i8(int64_t iterations) { return peak_i8_loop(iterations); }

}  // namespace

void fill_peaks(CpuKernels& table) { table.peak_i8 = peak_i8; }

}  // namespace redline::REDLINE_ISA_NS
