// Tells whether the linear kernels of a type were chosen by measurement or by rule.
#pragma once

#include "kernels/cpu/cpu_kernels.h"

namespace redline {

/// Returns true if choose_linear uses an entry of linear_choice_table.inc, which tools/kernel_records generates from
/// bench/traces; false if it uses the rule of linear_choice.cc.
bool is_linear_choice_recorded(const CpuKernels& table, DType weight);

}  // namespace redline
