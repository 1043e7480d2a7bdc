// Which linear kernel serves how many rows of x, and so in which form x is wanted.
#pragma once

#include "kernels/cpu/cpu_kernels.h"

namespace redline {

/// The kernels that multiply by one type of weight, beside the forms that they read.
struct LinearKernels {
  ActivationLayouts layouts;
  void (*run[ActivationLayouts::kMax])(const LinearArgs&) = {};

  void (*for_rows(int64_t rows) const)(const LinearArgs&) { return run[layouts.index_for_rows(rows)]; }
};

/// `exact_f32`: float32 products at any number of rows. No kernel at all (run[0] null) for a type that cannot be
/// multiplied by.
LinearKernels choose_linear(const CpuKernels& table, DType weight, bool exact_f32);

}  // namespace redline
