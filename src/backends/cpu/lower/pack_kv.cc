#include <algorithm>

#include "backends/cpu/joint_attention_lowering.h"

namespace redline {
namespace {

struct Segment {
  Dim tokens;
  Operand<const float> k, v;
  HeadStepKernels steps;  ///< kernels for the steps of the keys
};

struct PackKvParams {
  PackKvAttrs a;
  int row_parts;
  std::vector<Segment> segments;
  PackedKv packed;
  void (*append)(const KvAppendArgs&);
  std::vector<int32_t> slots;  ///< 0, 1, 2, ..
  Dim sequences;
  Operand<const int32_t> offsets;  ///< offsets of packed sequences, or null
  Operand<uint8_t> y;
};

/// Packs slots [begin, end) of an item's keys, all of one segment and one page, for the heads of the tile. `row` is the
/// first one among the segment's rows.
void pack_page(const PackKvParams& s, const Segment& segment, const Tile& tile, const BatchItem& item, RowRange slots,
               int64_t row, WorkerContext& worker) {
  const int64_t d = s.a.head_dim, stride = s.a.num_heads * d;
  const float* k = segment.k + row * stride;
  const float* v = segment.v + row * stride;
  if (segment.steps.any()) {
    auto* page = static_cast<float*>(worker.buffer);
    for (int64_t r = 0; r < slots.end - slots.begin; ++r)
      segment.steps.apply(k + r * stride + tile.col_begin, (tile.col_end - tile.col_begin) / d, d, row + r,
                          page + r * stride + tile.col_begin);
    k = page;
  }
  for (int64_t col = tile.col_begin; col < tile.col_end; col += d)
    s.append({.k = k + col,
              .v = v + col,
              .row_stride = stride,
              .slots = s.slots.data() + slots.begin,
              .rows = slots.end - slots.begin,
              .head_dim = d,
              .cache = s.packed.head(s.y, item.pages_before, item.rows, col / d)});
}

// A tile covers some heads of some keys.
void run_pack_kv(const PackKvParams& s, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const int64_t keys = s.a.keys.eval(step.sizes), batch = s.a.batch.eval(step.sizes);
  const auto pack = [&](const BatchItem& item, RowRange wanted) {
    const RowRange mine = round_range({0, item.rows}, wanted, kKvPageTokens);
    int64_t first = 0;
    for (const Segment& segment : s.segments) {
      const int64_t tokens = s.offsets ? item.rows : segment.tokens.eval(step.sizes);
      const int64_t first_row = s.offsets ? item.first_row : item.index * tokens;
      const int64_t begin = std::max(mine.begin, first), end = std::min(mine.end, first + tokens);
      // Page by page over all heads, so that input rows are read sequentially.
      for (int64_t at = begin, next = 0; at < end; at = next) {
        next = std::min(end, (at / kKvPageTokens + 1) * kKvPageTokens);
        pack_page(s, segment, tile, item, {at, next}, first_row + at - first, worker);
      }
      first += tokens;
    }
  };
  const RowRange rows = row_range(tile, s.row_parts, batch * keys);
  if (s.offsets) for_sequence_ranges(rows, s.offsets, s.sequences.eval(step.sizes), pack);
  else for_item_ranges(rows, keys, keys, pack);
}

Status lower_pack_kv(LowerContext& c) {
  const auto& a = std::any_cast<const PackKvAttrs&>(c.op().attrs);
  const KvFormat format = PackedKv::format_of(c);
  auto* append = c.kernels().kv_append[static_cast<size_t>(format)];
  if (!append) return unsupported("no kernel packs keys and values in this format");
  TaskGrid grid = head_grid(a.num_heads * a.head_dim, a.head_dim, c.workers());
  auto params = std::make_shared<PackKvParams>(PackKvParams{.a = a,
                                                            .row_parts = grid.row_parts,
                                                            .segments = std::vector<Segment>(a.tokens.size()),
                                                            .packed = PackedKv(format, a.num_heads, a.head_dim),
                                                            .append = append,
                                                            .slots = consecutive(a.keys.eval(c.options().bounds)),
                                                            .sequences = 0,
                                                            .offsets = {},
                                                            .y = {}});
  auto stage = LoweredStage::make<run_pack_kv>(std::move(grid), params);
  size_t next = 2 * a.tokens.size();  // the inputs of the steps follow keys, values and offsets
  if (a.has_offsets) {
    params->sequences = c.in(next).shape[0] + Dim(-1);
    stage.read(params->offsets, c.op().inputs[next++], Reads::kAll);
  }
  for (size_t i = 0; i < a.tokens.size(); ++i) {
    Segment& segment = params->segments[i];
    segment.tokens = a.tokens[i];
    // Rows of a segment are not rows of the packed keys.
    stage.read(segment.k, c.op().inputs[2 * i], Reads::kCols);
    stage.read(segment.v, c.op().inputs[2 * i + 1], Reads::kCols);
    REDLINE_ASSIGN(next, segment.steps.lower(c, a.steps[i], next, stage));
    if (segment.steps.any())
      stage.buffer_bytes = kKvPageTokens * a.num_heads * a.head_dim * static_cast<int64_t>(sizeof(float));
  }
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kPackKvOps[] = {{&kPackKv, lower_pack_kv}};

}  // namespace

extern const CpuLowerings kPackKvLowerings = kPackKvOps;

}  // namespace redline
