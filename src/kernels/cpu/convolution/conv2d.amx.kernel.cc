#define REDLINE_TILE_UNIT AmxTiles
#include "kernels/cpu/convolution/conv2d.inc"
