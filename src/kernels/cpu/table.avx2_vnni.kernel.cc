// Entries that avx2_vnni replaces.
#include "kernels/cpu/cpu_kernels.h"

namespace redline::REDLINE_ISA_NS {

void fill_linear_q8(CpuKernels& table);
void fill_linear_i8(CpuKernels& table);
void fill_lora_expand(CpuKernels& table);
void fill_peaks(CpuKernels& table);

void fill_table(CpuKernels& table) {
  fill_linear_q8(table);
  fill_linear_i8(table);
  fill_lora_expand(table);
  fill_peaks(table);
}

}  // namespace redline::REDLINE_ISA_NS
