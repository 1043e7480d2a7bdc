// lora_expand.inc compiled with vpdpbusd, a 4-byte dot product in one instruction (simd_avx2.inc).
#include "kernels/cpu/linear/lora_expand.inc"
