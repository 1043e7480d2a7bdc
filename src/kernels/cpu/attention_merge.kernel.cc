// Merges the partial results of chunks into one, in order of position.
#include "kernels/cpu/attention_page.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr int kMaxHeadDim = 640;

void attention_merge(const AttentionMergeArgs& a) {
  alignas(64) float sums[kMaxHeadDim];
  const int64_t lines = a.rows * a.group, size = attention_partial_floats(a.head_dim);
  for (int64_t line = 0; line < lines; ++line) {
    Partial all{sums, 0.0f, 0.0f};
    clear(all, a.head_dim);
    for (int64_t i = 0; i < a.num_shared; ++i) {
      const Partial part = partial_at(a.shared + i * a.shared_stride + line * size, a.head_dim);
      if (i > 0) fold(all, part, a.head_dim);
      else {
        all.max = part.max;
        all.total = part.total;
        for (int64_t d = 0; d < a.head_dim; d += kWidth) store(sums + d, load(part.sums + d, Full{}), Full{});
      }
    }
    for (int64_t chunk = 0; chunk < a.chunks; ++chunk)
      fold(all, partial_at(a.partials + (chunk * lines + line) * size, a.head_dim), a.head_dim);
    write_line(all, a.head_dim, a.y + line / a.group * a.y_stride + line % a.group * a.head_dim,
               sink_of(a.sinks, a.group, line));
  }
}

}  // namespace

void fill_attention_merge(CpuKernels& table) { table.attention_merge = attention_merge; }

}  // namespace redline::REDLINE_ISA_NS
