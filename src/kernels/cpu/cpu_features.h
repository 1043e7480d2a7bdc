// The features that the CPU and the operating system support, in the groups that kernels are compiled for.
#pragma once

#include <string_view>

namespace redline {

/// Returns true if a feature is supported. Names, each for the features that its kernels need together:
///   avx2         AVX2, FMA, F16C, BMI2, POPCNT
///   avx_vnni     AVX2 and dot products of bytes in vectors of 256 bits, without AVX-512
///   avx512       F, BW, DQ, VL
///   avx512_vnni, avx512_bf16, avx512_fp16, avx512_vbmi
///   amx          tiles of int8 and bf16; amx_fp16: also of float16
/// False for any other name, and for all of them where the CPU is not an x86-64.
bool cpu_has(std::string_view feature);

}  // namespace redline
