// Again with vpdpbusd.
#include "kernels/cpu/linear_i8.inc"
