// Attention over float16 pages for CPUs whose tile unit multiplies float16: tiles for many query rows, vectors for few.
#include "kernels/cpu/attention.inc"
#include "kernels/cpu/attention_f16_tiles.h"

namespace redline::REDLINE_ISA_NS {
namespace {

void f16_tiles(const AttentionArgs& a) {
  AmxF16Tiles unit;
  attention_by_f16_tiles(unit, a);
}
void f16_tiles_or_vectors(const AttentionArgs& a) {
  if (a.rows * a.group >= kAttentionTileRows) f16_tiles(a);
  else attention<F16>(a);
}

}  // namespace

void fill_attention(CpuKernels& table) {
  const auto format = static_cast<int>(KvFormat::kF16);
  table.attention_tiles[format] = f16_tiles;
  table.attention[format] = table.attention_with_tiles[format] = f16_tiles_or_vectors;
}

}  // namespace redline::REDLINE_ISA_NS
