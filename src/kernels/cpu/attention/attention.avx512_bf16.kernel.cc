// Attention over bfloat16 pages with vdpbf16ps, for cores without a tile unit.
#include "kernels/cpu/attention/attention_bf16_chunks.h"
#include "kernels/cpu/attention/attention_bf16_tiles.h"
#include "kernels/cpu/attention/attention_dots.h"

namespace redline::REDLINE_ISA_NS {
namespace {

void bf16_dots(const AttentionArgs& a) {
  AttentionDots unit;
  attention_by_bf16_tiles(unit, a);
}

}  // namespace

void fill_attention_bf16_dot(CpuKernels& table) {
  const auto format = static_cast<int>(KvFormat::kBF16);
  table.attention_tiles[format] = bf16_dots;
  table.attention[format] = attention_by_bf16_chunks;
}

}  // namespace redline::REDLINE_ISA_NS
