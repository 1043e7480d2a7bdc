#define REDLINE_TILE_UNIT AmxTiles
#include "kernels/cpu/attention/attention_with_tiles.inc"

namespace redline::REDLINE_ISA_NS {

void fill_attention(CpuKernels& table) {
  fill_attention_with_tiles(table);
  for (int f = 0; f < kNumKvFormats; ++f)
    if (table.attention_with_tiles[f] != nullptr) table.attention[f] = table.attention_with_tiles[f];
}

}  // namespace redline::REDLINE_ISA_NS
