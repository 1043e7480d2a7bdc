#include "graph/ops/activation.h"

#include "backends/cpu/lowering.h"
#include "backends/cpu/prepared_output.h"
#include "kernels/cpu/activation.h"

namespace redline {
namespace {

struct Attrs {
  void (*kernel)(const ActivationArgs&);
  ActivationAttrs op;
  bool gated, prepared;
  int64_t in_cols;
  PreparedOutput out;
};

// operands: y, gate, up
void run(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  auto apply_to = [&](const Tile& part, float* y, int64_t y_stride) {
    const int64_t at = part.row_begin * a.in_cols + part.col_begin;
    const float* gate = stage.operand<float>(1) + at + (a.op.halves ? a.out.cols : 0);
    const float* up = !a.gated ? nullptr : stage.operand<float>(a.op.halves ? 1 : 2) + at;
    a.kernel({gate, a.in_cols, up, a.in_cols, y, y_stride, part.row_end - part.row_begin, part.col_end - part.col_begin,
              a.op.kind});
  };
  if (!a.prepared)
    return apply_to(tile, stage.operand<float>(0) + tile.row_begin * a.out.cols + tile.col_begin, a.out.cols);
  a.out.write_parts(tile, a.out.rows.eval(step.sizes), worker.scratch, stage.operands[0],
                    [&](const Tile& part, float* y) { apply_to(part, y, part.col_end - part.col_begin); });
}

Status lower(LowerContext& c) {
  const auto& in = c.op().inputs;
  auto attrs = std::make_shared<Attrs>();
  attrs->kernel = c.kernels().activation;
  attrs->op = std::any_cast<const ActivationAttrs&>(c.op().attrs);
  attrs->gated = c.op().def == &kGatedActivation;
  attrs->prepared = !c.out().layouts.only_f32();
  attrs->in_cols = c.in(0).shape[1].constant();
  REDLINE_ASSIGN(attrs->out, PreparedOutput::make(c));
  LoweredStage stage = c.output_stage(run);
  std::vector<LowerContext::Operand> operands = {c.at(c.op().outputs[0])};
  for (ValueId id : in) {
    stage.reads.push_back({id, attrs->op.halves ? Reads::kRows : Reads::kTile});
    operands.push_back(c.at(id));
  }
  // Same column tiles as the preceding linear, so that a tile starts as soon as its columns are ready; `halves` reads
  // two ranges of columns.
  const int64_t grain = std::max<int64_t>(32, c.out().layouts.grain());
  if (attrs->op.halves) stage.row_tiles = c.workers();
  else stage.col_begin = LowerContext::cut_columns(stage.cols, grain, c.workers() * 4);
  if (!attrs->prepared && !attrs->op.halves) stage.in_place_of = in[0];
  stage.attrs = attrs;
  c.add_stage(std::move(stage), operands);
  return {};
}

}  // namespace

extern const CpuLowering kActivationLowering = {&kActivation, lower};
extern const CpuLowering kGatedActivationLowering = {&kGatedActivation, lower};

}  // namespace redline
