// Only with vpdpbusd: without it a dot product of four bytes is several instructions.
#include "kernels/cpu/linear/linear_requantized.inc"
