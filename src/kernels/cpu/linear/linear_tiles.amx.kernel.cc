#define REDLINE_TILE_UNIT AmxTiles
#include "kernels/cpu/linear/linear_tiles.inc"
