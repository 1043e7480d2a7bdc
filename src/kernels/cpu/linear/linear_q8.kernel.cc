// The entries of linear_q8.inc, which the build compiles as several sources.
#include "kernels/cpu/linear/linear_q8_parts.h"

namespace redline::REDLINE_ISA_NS {

void fill_linear_q8(CpuKernels& table) { fill_linear_q8_parts(table); }

}  // namespace redline::REDLINE_ISA_NS
