// Merges the partial results of chunks into one, in order of position.
#include "kernels/cpu/attention/attention_page.h"

namespace redline::REDLINE_ISA_NS {
namespace {

void attention_merge(const AttentionMergeArgs& a) {
  alignas(64) float sums[kMaxHeadDim];
  const int64_t query_rows = a.rows * a.group, size = attention_partial_floats(a.head_dim);
  for (int64_t query_row = 0; query_row < query_rows; ++query_row) {
    Partial all{sums, 0.0f, 0.0f};
    clear(all, a.head_dim);
    for (int64_t i = 0; i < a.num_shared; ++i) {
      const Partial part = partial_at(a.shared + i * a.shared_stride + query_row * size, a.head_dim);
      if (i > 0) fold(all, part, a.head_dim);
      else {
        all.max = part.max;
        all.total = part.total;
        for (int64_t d = 0; d < a.head_dim; d += kWidth) store(sums + d, load(part.sums + d, Full{}), Full{});
      }
    }
    for (int64_t chunk = 0; chunk < a.chunks; ++chunk)
      fold(all, partial_at(a.partials + (chunk * query_rows + query_row) * size, a.head_dim), a.head_dim);
    write_row(all, a.head_dim, a.y + query_row / a.group * a.y_stride + query_row % a.group * a.head_dim,
              sink_of(a.sinks, a.group, query_row));
  }
}

}  // namespace

void fill_attention_merge(CpuKernels& table) { table.attention_merge = attention_merge; }

}  // namespace redline::REDLINE_ISA_NS
