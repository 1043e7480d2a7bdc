// The kernel on the emulated tile unit: for tests on every CPU.
#include "kernels/cpu/linear/linear_i8_tiles.h"

namespace redline::REDLINE_ISA_NS {
namespace {

void linear_i8_tiles(const LinearArgs& a) { LinearI8Tiles<PlainTiles>(a).run(); }

}  // namespace

void fill_linear_i8_tiles(CpuKernels& t) { t.linear_i8_tiles[static_cast<int>(Weight::kDType)] = linear_i8_tiles; }

}  // namespace redline::REDLINE_ISA_NS
