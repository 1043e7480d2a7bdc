// linear_q8.inc compiled with vpdpbusd, a 4-byte dot product in one instruction (simd_avx512.inc).
#include "kernels/cpu/linear_q8.inc"
