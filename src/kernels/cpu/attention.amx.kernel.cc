// Attention on AMX: tile products for many lines, vectors for few.
#include "kernels/cpu/attention.inc"
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

}  // namespace

void fill_attention(CpuKernels& table) {
  table.attention[static_cast<int>(KvFormat::kF16)] = tiles_or_vectors<F16>;
  table.attention[static_cast<int>(KvFormat::kBF16)] = tiles_or_vectors<BF16>;
  table.attention_tiles[static_cast<int>(KvFormat::kF16)] = tiles<F16>;
  table.attention_tiles[static_cast<int>(KvFormat::kBF16)] = tiles<BF16>;
}

}  // namespace redline::REDLINE_ISA_NS
