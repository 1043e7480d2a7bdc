// Selects the linear kernel and activation layout by number of rows of x.
#pragma once

#include <optional>

#include "kernels/cpu/cpu_kernels.h"

namespace redline {

/// The kernels of one weight type and the activation layouts that they read.
struct LinearKernels {
  ActivationLayouts layouts;
  void (*run[ActivationLayouts::kMax])(const LinearArgs&) = {};

  void (*for_rows(int64_t rows) const)(const LinearArgs&) { return run[layouts.index_for_rows(rows)]; }
};

/// Chooses the kernels of a weight type. `exact_f32`: float32 products for any number of rows. run[0] is null when
/// there is no kernel for the type.
LinearKernels choose_linear(const CpuKernels& table, DType weight, bool exact_f32,
                            BatchInvariance rows = BatchInvariance::kNone);

/// Returns the kernel of a weight type that reads x in `layout`; nullptr: there is none.
void (*linear_kernel(const CpuKernels& table, DType weight, ActivationLayout layout))(const LinearArgs&);

/// Returns a type for weights that are computed at run time: the first type that can_round_to and whose kernels read x
/// in all of `layouts`, in the order f32 (`exact_f32` only), bf16, then the quantized types. nullopt: there is none.
std::optional<DType> weight_type_reading(const CpuKernels& table, const ActivationLayouts& layouts, bool exact_f32);

}  // namespace redline
