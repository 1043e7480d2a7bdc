#define REDLINE_TILE_UNIT PlainTiles
#include "kernels/cpu/convolution/conv2d.inc"
