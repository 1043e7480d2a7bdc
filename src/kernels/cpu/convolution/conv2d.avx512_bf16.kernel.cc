#define REDLINE_TILE_UNIT ConvDots
#include "kernels/cpu/convolution/conv2d.inc"
