#include "kernels/cpu/linear/linear_i8_tiles.h"

namespace redline::REDLINE_ISA_NS {
namespace {

void linear_i8_tiles(const LinearArgs& a) { LinearI8Tiles<AmxTiles>(a).run(); }

}  // namespace

void fill_linear_i8_tiles(CpuKernels& t) {
  constexpr auto kType = static_cast<int>(Weight::kDType);
  t.linear_i8[kType] = t.linear_i8_tiles[kType] = linear_i8_tiles;
}

}  // namespace redline::REDLINE_ISA_NS
