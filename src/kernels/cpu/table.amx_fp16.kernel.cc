// Entries that amx_fp16 replaces.
#include "kernels/cpu/cpu_kernels.h"

namespace redline::REDLINE_ISA_NS {

void fill_peaks(CpuKernels& table);

void fill_table(CpuKernels& table) { fill_peaks(table); }

}  // namespace redline::REDLINE_ISA_NS
