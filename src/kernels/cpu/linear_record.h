// Whether measurements or a rule chose the linear kernels of a type.
#pragma once

#include "kernels/cpu/cpu_kernels.h"

namespace redline {

/// True when choose_linear follows a line of linear_choice_table.inc, which tools/kernel_records makes of bench/traces;
/// false when it follows the rule of linear_choice.cc.
bool is_linear_choice_recorded(const CpuKernels& table, DType weight);

}  // namespace redline
