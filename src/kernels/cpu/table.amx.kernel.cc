// Entries that amx replaces.
#include "kernels/cpu/cpu_kernels.h"

namespace redline::REDLINE_ISA_NS {

void fill_tiles(CpuKernels& table);
void fill_linear_tiles(CpuKernels& table);
void fill_linear_i8_tiles(CpuKernels& table);
void fill_attention(CpuKernels& table);
void fill_conv2d(CpuKernels& table);
void fill_peaks(CpuKernels& table);

void fill_table(CpuKernels& table) {
  fill_tiles(table);
  fill_linear_tiles(table);
  fill_linear_i8_tiles(table);
  fill_attention(table);
  fill_conv2d(table);
  fill_peaks(table);
}

}  // namespace redline::REDLINE_ISA_NS
