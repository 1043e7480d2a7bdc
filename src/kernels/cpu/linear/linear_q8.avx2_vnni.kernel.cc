// Kernels of linear_q8 with vpdpbusd, a 4-byte dot product in one instruction (simd_avx2.inc).
#include "kernels/cpu/linear/linear_q8_parts.h"

namespace redline::REDLINE_ISA_NS {

void fill_linear_q8(CpuKernels& table) { fill_linear_q8_parts(table); }

}  // namespace redline::REDLINE_ISA_NS
