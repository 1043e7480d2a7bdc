#define REDLINE_TILE_UNIT ConvDots
#include "kernels/cpu/conv2d.inc"
