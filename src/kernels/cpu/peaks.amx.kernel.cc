// int8 and bfloat16 peaks of the tile unit: a 2 x 2 block of products from tile registers. Needs worker_begin().
#include "kernels/cpu/peak_operands.h"
#include "kernels/cpu/tiles.h"

namespace redline::REDLINE_ISA_NS {
namespace {

void load_operands(AmxTiles& t, uint16_t always, uint16_t random) {
  const PeakOperands operands(always, random);
  t.load<4>(operands.tiles[0], 64);
  t.load<5>(operands.tiles[1], 64);
  t.load<6>(operands.tiles[2], 64);
  t.load<7>(operands.tiles[3], 64);
  t.zero<0>();
  t.zero<1>();
  t.zero<2>();
  t.zero<3>();
}

double peak_bf16(int64_t iterations) {
  AmxTiles t;
  load_operands(t, 0x3f00, 0x80ff);  // in [1/2, 2), of either sign
  for (int64_t i = 0; i < iterations; ++i) {
    t.dot_bf16<0, 4, 6>();
    t.dot_bf16<1, 4, 7>();
    t.dot_bf16<2, 5, 6>();
    t.dot_bf16<3, 5, 7>();
  }
  return 2.0 * 4 * 16 * 16 * 32 * static_cast<double>(iterations);
}

double peak_i8(int64_t iterations) {
  AmxTiles t;
  load_operands(t, 0, 0xffff);
  for (int64_t i = 0; i < iterations; ++i) {
    t.dot_s8s8<0, 4, 6>();
    t.dot_s8s8<1, 4, 7>();
    t.dot_s8s8<2, 5, 6>();
    t.dot_s8s8<3, 5, 7>();
  }
  return 2.0 * 4 * 16 * 16 * 64 * static_cast<double>(iterations);
}

}  // namespace

void fill_peaks(CpuKernels& table) {
  table.peak_bf16 = peak_bf16;
  table.peak_i8 = peak_i8;
}

}  // namespace redline::REDLINE_ISA_NS
