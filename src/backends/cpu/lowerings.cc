// The CPU lowerings, by op. Each file in lower/ defines those of one op, or of a few that are alike.
#include "backends/cpu/lowering.h"
#include "backends/lowering_table.h"

namespace redline {

#define REDLINE_ROW(rows) extern const CpuLowerings rows;
#include <cpu_lowerings.inc>  // of the build: one row per file in lower/
#undef REDLINE_ROW

const CpuLowering* find_cpu_lowering(const OpDef* op) {
  static const LoweringTable<CpuLowering> table = {
#define REDLINE_ROW(rows) rows,
#include <cpu_lowerings.inc>
#undef REDLINE_ROW
  };
  return table.find(op);
}

}  // namespace redline
