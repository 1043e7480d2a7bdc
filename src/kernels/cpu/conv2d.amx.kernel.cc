#define REDLINE_TILE_UNIT AmxTiles
#include "kernels/cpu/conv2d.inc"
