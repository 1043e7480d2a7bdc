#include "kernels/cpu/linear_q8.inc"
