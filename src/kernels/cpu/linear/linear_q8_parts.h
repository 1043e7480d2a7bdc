// The sources that linear_q8.inc is compiled into. One source with all formats takes minutes to compile, more than all
// other kernels of its instruction set together, and only one core works on it.
#pragma once

#include "kernels/cpu/cpu_kernels.h"

namespace redline::REDLINE_ISA_NS {

/// Number of sources. cmake/RedlineKernels.cmake reads it from this line.
inline constexpr int kLinearQ8Parts = 8;

/// Fills in the entries of every kLinearQ8Parts-th format, from DType `part` on. Each source instantiates one part.
template <int part>
void fill_linear_q8_part(CpuKernels& table);

template <int part = 0>
void fill_linear_q8_parts(CpuKernels& table) {
  if constexpr (part < kLinearQ8Parts) {
    fill_linear_q8_part<part>(table);
    fill_linear_q8_parts<part + 1>(table);
  }
}

}  // namespace redline::REDLINE_ISA_NS
