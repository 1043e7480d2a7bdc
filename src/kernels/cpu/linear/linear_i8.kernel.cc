#include "kernels/cpu/linear/linear_i8.inc"
