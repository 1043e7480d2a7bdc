// float16 peak of vfmadd213ph. Inline assembly, as this is the only instruction that the file needs of the set.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/peak_loops.h"

namespace redline::REDLINE_ISA_NS {
namespace {

double peak_f16(int64_t iterations) {
  static_assert(kPeakChains == 12);
  VecF32 s0 = zero_f32(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0, s8 = s0, s9 = s0, s10 = s0,
         s11 = s0;
  const VecI32 a = set1_i32(0x38003800), b = set1_i32(0x34003400);  // pairs of 0.5 and of 0.25
  for (int64_t i = 0; i < iterations; ++i) {
    // One statement and no array: GCC 12 would keep an array of sums in memory.
    asm volatile(
        "vfmadd213ph %13, %12, %0\n\t"
        "vfmadd213ph %13, %12, %1\n\t"
        "vfmadd213ph %13, %12, %2\n\t"
        "vfmadd213ph %13, %12, %3\n\t"
        "vfmadd213ph %13, %12, %4\n\t"
        "vfmadd213ph %13, %12, %5\n\t"
        "vfmadd213ph %13, %12, %6\n\t"
        "vfmadd213ph %13, %12, %7\n\t"
        "vfmadd213ph %13, %12, %8\n\t"
        "vfmadd213ph %13, %12, %9\n\t"
        "vfmadd213ph %13, %12, %10\n\t"
        "vfmadd213ph %13, %12, %11"
        : "+v"(s0.v), "+v"(s1.v), "+v"(s2.v), "+v"(s3.v), "+v"(s4.v), "+v"(s5.v), "+v"(s6.v), "+v"(s7.v), "+v"(s8.v),
          "+v"(s9.v), "+v"(s10.v), "+v"(s11.v)
        : "v"(a.v), "v"(b.v));
  }
  keep(((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)) + ((s8 + s9) + (s10 + s11)));
  return 2.0 * 2 * kPeakChains * kWidth * static_cast<double>(iterations);
}

}  // namespace

void fill_peaks(CpuKernels& table) { table.peak_f16 = peak_f16; }

}  // namespace redline::REDLINE_ISA_NS
