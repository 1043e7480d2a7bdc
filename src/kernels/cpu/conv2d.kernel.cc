#define REDLINE_TILE_UNIT PlainTiles
#include "kernels/cpu/conv2d.inc"
