// linear_i8.inc compiled with vpdpbusd.
#include "kernels/cpu/linear/linear_i8.inc"
