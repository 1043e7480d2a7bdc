// Selects the linear kernel and activation layout by number of rows of x.
#pragma once

#include "kernels/cpu/cpu_kernels.h"

namespace redline {

/// The kernels of one weight type and the activation layouts that they read.
struct LinearKernels {
  ActivationLayouts layouts;
  void (*run[ActivationLayouts::kMax])(const LinearArgs&) = {};

  void (*for_rows(int64_t rows) const)(const LinearArgs&) { return run[layouts.index_for_rows(rows)]; }
};

/// `exact_f32`: float32 products for any number of rows. run[0] is null when there is no kernel for the type.
LinearKernels choose_linear(const CpuKernels& table, DType weight, bool exact_f32);

}  // namespace redline
