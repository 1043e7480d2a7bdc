// Vector attention for every base set, and the tile version on the portable emulation of the tile unit, for tests.
#define REDLINE_TILE_UNIT PlainTiles
#include "kernels/cpu/attention/attention_bf16_chunks.h"
#include "kernels/cpu/attention/attention_with_tiles.inc"

namespace redline::REDLINE_ISA_NS {

void fill_attention(CpuKernels& table) {
  table.attention[static_cast<int>(KvFormat::kF32)] = attention<float>;
  table.attention[static_cast<int>(KvFormat::kF16)] = attention<F16>;
  table.attention[static_cast<int>(KvFormat::kBF16)] = attention_by_bf16_chunks;
  fill_attention_with_tiles(table);
}

}  // namespace redline::REDLINE_ISA_NS
