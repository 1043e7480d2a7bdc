// The tile lowerings, by op. Each file in lower/ defines those of one op, or of a few that are alike.
#include "backends/tiles/tile_lowering.h"

namespace redline {

#define REDLINE_ROW(rows) extern const TileLowerings rows;
#include <tile_lowerings.inc>  // of the build: one row per file in lower/
#undef REDLINE_ROW

const TileLowering* find_tile_lowering(const OpDef* op) {
  static const std::map<const OpDef*, const TileLowering*> all = [] {
    std::map<const OpDef*, const TileLowering*> by_op;
#define REDLINE_ROW(rows) \
  for (const TileLowering& lowering : rows) by_op[lowering.op] = &lowering;
#include <tile_lowerings.inc>
#undef REDLINE_ROW
    return by_op;
  }();
  const auto found = all.find(op);
  return found == all.end() ? nullptr : found->second;
}

}  // namespace redline
