#define REDLINE_TILE_UNIT AmxTiles
#include "kernels/cpu/linear_tiles.inc"
