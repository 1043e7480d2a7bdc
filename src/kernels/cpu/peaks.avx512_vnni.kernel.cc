// The peak of 512 bits.
#include "kernels/cpu/peaks_vnni.inc"
