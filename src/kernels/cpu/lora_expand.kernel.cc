#include "kernels/cpu/lora_expand.inc"
