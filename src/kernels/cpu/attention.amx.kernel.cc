// Attention on AMX: tile products for many lines, vectors for few.
#include "kernels/cpu/attention.inc"
#include "kernels/cpu/attention_bf16_tiles.h"
#include "kernels/cpu/attention_tiles.h"

namespace redline::REDLINE_ISA_NS {
namespace {

/// From here on tiles are faster (docs/performance.md). It depends on the rows of one call only, so the plan of a step
/// decides, not the number of workers.
constexpr int64_t kLinesForTiles = 9;

template <class Element>
void tiles(const AttentionArgs& a) {
  AmxTiles unit;
  attention_by_tiles<Element>(unit, a);
}
template <class Element>
void tiles_or_vectors(const AttentionArgs& a) {
  if (a.rows * a.group >= kLinesForTiles) tiles<Element>(a);
  else attention<Element>(a);
}

void bf16_tiles(const AttentionArgs& a) {
  AmxTiles unit;
  attention_by_bf16_tiles(unit, a);
}

}  // namespace

void fill_attention(CpuKernels& table) {
  table.attention[static_cast<int>(KvFormat::kF16)] = tiles_or_vectors<F16>;
  table.attention[static_cast<int>(KvFormat::kBF16)] = bf16_tiles;
  table.attention_tiles[static_cast<int>(KvFormat::kF16)] = tiles<F16>;
  table.attention_tiles[static_cast<int>(KvFormat::kBF16)] = bf16_tiles;
}

}  // namespace redline::REDLINE_ISA_NS
