// float16 peak of the tile unit (tdpfp16ps). Needs worker_begin() of the amx table.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/peak_operands.h"
#include "kernels/cpu/tiles.h"

namespace redline::REDLINE_ISA_NS {
namespace {

double peak_f16(int64_t iterations) {
  const PeakOperands operands(0x3800, 0x87ff);  // in [1/2, 2), of either sign
  AmxTiles t;
  t.load<4>(operands.tiles[0], 64);
  t.load<5>(operands.tiles[1], 64);
  t.load<6>(operands.tiles[2], 64);
  t.load<7>(operands.tiles[3], 64);
  t.zero<0>();
  t.zero<1>();
  t.zero<2>();
  t.zero<3>();
  for (int64_t i = 0; i < iterations; ++i) {
    // Encoded as bytes for assemblers older than the instruction.
    asm volatile(
        ".byte 0xc4, 0xe2, 0x4b, 0x5c, 0xc4\n\t"   // tdpfp16ps tmm0, tmm4, tmm6
        ".byte 0xc4, 0xe2, 0x43, 0x5c, 0xcc\n\t"   // tdpfp16ps tmm1, tmm4, tmm7
        ".byte 0xc4, 0xe2, 0x4b, 0x5c, 0xd5\n\t"   // tdpfp16ps tmm2, tmm5, tmm6
        ".byte 0xc4, 0xe2, 0x43, 0x5c, 0xdd" ::);  // tdpfp16ps tmm3, tmm5, tmm7
  }
  return 2.0 * 4 * 16 * 16 * 32 * static_cast<double>(iterations);
}

}  // namespace

void fill_peaks(CpuKernels& table) { table.peak_f16 = peak_f16; }

}  // namespace redline::REDLINE_ISA_NS
