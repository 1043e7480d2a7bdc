// Attention by vectors for every base set, and its tile form over the plain stand-in, which is there for tests.
#include "kernels/cpu/attention.inc"
#include "kernels/cpu/attention_bf16_tiles.h"
#include "kernels/cpu/attention_tiles.h"

namespace redline::REDLINE_ISA_NS {
namespace {

template <class Element>
void plain_tiles(const AttentionArgs& a) {
  PlainTiles unit;
  attention_by_tiles<Element>(unit, a);
}
void plain_bf16_tiles(const AttentionArgs& a) {
  PlainTiles unit;
  attention_by_bf16_tiles(unit, a);
}

}  // namespace

void fill_attention(CpuKernels& table) {
  table.attention[static_cast<int>(KvFormat::kF32)] = attention<float>;
  table.attention[static_cast<int>(KvFormat::kF16)] = attention<F16>;
  table.attention[static_cast<int>(KvFormat::kBF16)] = attention<BF16>;
  table.attention_tiles[static_cast<int>(KvFormat::kF16)] = plain_tiles<F16>;
  table.attention_tiles[static_cast<int>(KvFormat::kBF16)] = plain_bf16_tiles;
}

}  // namespace redline::REDLINE_ISA_NS
