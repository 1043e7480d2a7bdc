// The same source where vpdpbusd does a dot product of four bytes in one step (simd_avx512.inc).
#include "kernels/cpu/linear_q8.inc"
