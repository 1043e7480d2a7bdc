// The tile lowerings, by op. Each file in lower/ defines those of one op, or of a few that are alike.
#include "backends/lowering_table.h"
#include "backends/tiles/tile_lowering.h"

namespace redline {

#define REDLINE_ROW(rows) extern const TileLowerings rows;
#include <tile_lowerings.inc>  // of the build: one row per file in lower/
#undef REDLINE_ROW

const TileLowering* find_tile_lowering(const OpDef* op) {
  static const LoweringTable<TileLowering> table = {
#define REDLINE_ROW(rows) rows,
#include <tile_lowerings.inc>
#undef REDLINE_ROW
  };
  return table.find(op);
}

}  // namespace redline
