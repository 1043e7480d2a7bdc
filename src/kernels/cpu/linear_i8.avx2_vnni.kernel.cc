// linear_i8.inc compiled with vpdpbusd.
#include "kernels/cpu/linear_i8.inc"
