// The peak of 256 bits.
#include "kernels/cpu/peaks_vnni.inc"
