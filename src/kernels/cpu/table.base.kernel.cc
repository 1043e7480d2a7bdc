// The entries of a base set: every kernel file NAME.kernel.cc defines fill_NAME, which fills in its own. Overlays have
// their own table.SET.kernel.cc.
#include "kernels/cpu/cpu_kernels.h"

namespace redline::REDLINE_ISA_NS {

#define REDLINE_ROW(fill) void fill(CpuKernels& table);
#include <cpu_kernels.inc>  // of the build: one row per NAME.kernel.cc
#undef REDLINE_ROW

void fill_table(CpuKernels& table) {
#define REDLINE_ROW(fill) fill(table);
#include <cpu_kernels.inc>
#undef REDLINE_ROW
}

}  // namespace redline::REDLINE_ISA_NS
