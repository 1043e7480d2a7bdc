#include "graph/ops/causal_conv.h"

#include <algorithm>

#include "backends/cpu/recurrent_place.h"
#include "kernels/cpu/recurrence.h"

namespace redline {
namespace {

struct CausalConvParams {
  void (*kernel)(const CausalConvArgs&);
  CausalConvAttrs a;
  int64_t channels;
  RecurrentPlace state;
  const float *weight, *bias = nullptr;
  Operand<const float> x;
  Operand<float> y;
};

// A tile covers some channels of all rows, or of a chunk of them, continuing from the previous chunk's state.
void run_causal_conv(const CausalConvParams& p, const Tile& tile, const StepContext& step, WorkerContext&) {
  for (size_t s = 0; s < step.sequences.size(); ++s) {
    const SequenceRows& rows = step.sequences[s];
    const int64_t begin = std::max<int64_t>(rows.row_begin, tile.row_begin);
    const int64_t end = std::min<int64_t>(rows.row_begin + rows.rows, tile.row_end);
    if (begin >= end) continue;
    const int64_t c = tile.col_begin, at = begin * p.channels + c;
    p.kernel({.x = p.x + at,
              .weight = p.weight + c,
              .bias = p.bias ? p.bias + c : nullptr,
              .before = (begin == rows.row_begin ? p.state.before(step, s) : p.state.after(step, s)) + c,
              .after = p.state.after(step, s) + c,
              .y = p.y + at,
              .stride = p.channels,
              .rows = end - begin,
              .channels = tile.col_end - c,
              .taps = p.a.taps,
              .has_silu = p.a.has_silu});
  }
}

Status lower_causal_conv(LowerContext& c) {
  constexpr int64_t kGrain = 16;
  const auto& in = c.op().inputs;
  auto params = std::make_shared<CausalConvParams>();
  params->kernel = c.kernels().causal_conv;
  params->a = std::any_cast<const CausalConvAttrs&>(c.op().attrs);
  params->channels = c.out().shape[1].constant();
  params->state = RecurrentPlace::of(c, 2);
  REDLINE_ASSIGN(params->weight, c.dense_weight(1));
  if (in.size() > 3) {
    REDLINE_ASSIGN(params->bias, c.dense_weight(3));
  }
  LoweredStage stage = c.output_stage<run_causal_conv>(params);
  stage.grid.col_begin = LowerContext::cut_columns(params->channels, kGrain, c.workers());
  stage.row_cuts = RowCuts::kAtRows;
  stage.rows_in_order = true;
  stage.read(params->x, in[0], Reads::kTile);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kCausalConvOps[] = {{&kCausalConv, lower_causal_conv}};

}  // namespace

extern const CpuLowerings kCausalConvLowerings = kCausalConvOps;

}  // namespace redline
