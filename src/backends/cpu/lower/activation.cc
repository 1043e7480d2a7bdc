#include "graph/ops/activation.h"

#include "backends/cpu/lowering.h"
#include "backends/cpu/prepared_output.h"
#include "kernels/cpu/activation.h"

namespace redline {
namespace {

struct ActivationParams {
  void (*kernel)(const ActivationArgs&);
  ActivationAttrs op;
  bool prepared;
  int64_t in_cols;
  PreparedOutput out;
  Operand<const float> gate, up;  // `up` is null if there is one input
  Operand<float> y;
};

void run_activation(const ActivationParams& p, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  auto apply_to = [&](const Tile& part, float* y, int64_t y_stride) {
    const int64_t at = part.row_begin * p.in_cols + part.col_begin;
    const float* up = p.op.halves ? p.gate : p.up;
    p.kernel({.x = p.gate + at + (p.op.halves ? p.out.cols : 0),
              .x_stride = p.in_cols,
              .up = up ? up + at : nullptr,
              .up_stride = p.in_cols,
              .y = y,
              .y_stride = y_stride,
              .rows = part.row_end - part.row_begin,
              .cols = part.col_end - part.col_begin,
              .kind = p.op.kind});
  };
  if (!p.prepared) return apply_to(tile, p.y + tile.row_begin * p.out.cols + tile.col_begin, p.out.cols);
  p.out.write_parts(tile, p.out.rows.eval(step.sizes), worker.scratch, p.y,
                    [&](const Tile& part, float* y) { apply_to(part, y, part.col_end - part.col_begin); });
}

Status lower_activation(LowerContext& c) {
  const auto& in = c.op().inputs;
  auto params = std::make_shared<ActivationParams>();
  params->kernel = c.kernels().activation;
  params->op = std::any_cast<const ActivationAttrs&>(c.op().attrs);
  params->prepared = !c.out().layouts.only_f32();
  params->in_cols = c.in(0).shape[1].constant();
  REDLINE_ASSIGN(params->out, PreparedOutput::make(c));
  const bool halves = params->op.halves;
  LoweredStage stage = c.output_stage<run_activation>(params);
  stage.read(params->gate, in[0], halves ? Reads::kRows : Reads::kTile);
  if (in.size() > 1) stage.read(params->up, in[1], Reads::kTile);
  stage.write(params->y, c.op().outputs[0]);
  // Column tiles are those of the preceding linear, so that a tile starts as soon as its columns are ready. With
  // `halves`, a tile reads two ranges of columns, so the work is divided by rows.
  const int64_t grain = std::max<int64_t>(32, c.out().layouts.grain());
  if (halves) stage.grid.row_parts = c.workers();
  else stage.grid.col_begin = LowerContext::cut_columns(stage.grid.cols, grain, c.workers() * 4);
  if (!params->prepared && !halves) stage.in_place_of = in[0];
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kActivationOps[] = {{&kActivation, lower_activation}, {&kGatedActivation, lower_activation}};

}  // namespace

extern const CpuLowerings kActivationLowerings = kActivationOps;

}  // namespace redline
