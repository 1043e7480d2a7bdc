#include "kernels/cpu/linear/lora_expand.inc"
