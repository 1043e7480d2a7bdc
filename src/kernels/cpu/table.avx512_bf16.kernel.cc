// Entries that avx512_bf16 replaces.
#include "kernels/cpu/cpu_kernels.h"

namespace redline::REDLINE_ISA_NS {

void fill_attention_bf16_dot(CpuKernels& table);
void fill_conv2d(CpuKernels& table);
void fill_linear_bf16_dot(CpuKernels& table);
void fill_peaks(CpuKernels& table);

void fill_table(CpuKernels& table) {
  fill_linear_bf16_dot(table);  // says whether the instruction is fast
  fill_attention_bf16_dot(table);
  fill_conv2d(table);
  fill_peaks(table);
}

}  // namespace redline::REDLINE_ISA_NS
