// The same source compiled with vpdpbusd.
#include "kernels/cpu/linear_i8.inc"
