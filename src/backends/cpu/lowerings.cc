// The CPU lowerings, by op. Each file in lower/ defines those of one op, or of a few that are alike.
#include "backends/cpu/lowering.h"

namespace redline {

#define REDLINE_ROW(rows) extern const CpuLowerings rows;
#include <cpu_lowerings.inc>  // of the build: one row per file in lower/
#undef REDLINE_ROW

const CpuLowering* find_cpu_lowering(const OpDef* op) {
  static const std::map<const OpDef*, const CpuLowering*> all = [] {
    std::map<const OpDef*, const CpuLowering*> by_op;
#define REDLINE_ROW(rows) \
  for (const CpuLowering& lowering : rows) by_op[lowering.op] = &lowering;
#include <cpu_lowerings.inc>
#undef REDLINE_ROW
    return by_op;
  }();
  const auto found = all.find(op);
  return found == all.end() ? nullptr : found->second;
}

}  // namespace redline
