// Portable emulation of a tile product, in every table; amx replaces it with the instructions.
#include "kernels/cpu/tiles.h"

namespace redline::REDLINE_ISA_NS {
namespace {

void plain_tile_product(const TileProductArgs& args) {
  PlainTiles unit;
  tile_product(unit, args);
}

}  // namespace

void fill_tile_product(CpuKernels& table) { table.tile_product = plain_tile_product; }

}  // namespace redline::REDLINE_ISA_NS
