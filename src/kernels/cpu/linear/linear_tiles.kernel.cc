// The emulated tile unit, for tests on every machine. CpuKernels::has_tile_unit is false with it, so nothing else uses
// it.
#define REDLINE_TILE_UNIT PlainTiles
#include "kernels/cpu/linear/linear_tiles.inc"
