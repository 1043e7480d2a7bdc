#include "graph/ops/gated_norm.h"

#include "backends/cpu/lowering.h"
#include "backends/cpu/prepared_output.h"

namespace redline {
namespace {

struct GatedNormParams {
  void (*norm)(const RmsNormArgs&);
  void (*silu_mul)(const SiluMulArgs&);
  GatedNormAttrs a;
  int64_t cols, weight_size;
  PreparedOutput out;
  const float* weight;
  Operand<const float> x, gate;
  Operand<float> y;
};

void norm_rows(const GatedNormParams& p, int64_t begin, int64_t end, float* y) {
  const int64_t at = begin * p.cols, count = (end - begin) * p.cols;
  const SiluMulArgs gate = {.gate = p.gate + at, .up = p.a.gates_first ? p.x + at : y, .y = y, .count = count};
  if (p.a.gates_first) p.silu_mul(gate);
  const float* x = p.a.gates_first ? y : p.x + at;
  // All rows at once where they share the weights of one group.
  const int64_t parts = p.weight_size == p.a.group ? 1 : count / p.a.group, groups = count / p.a.group / parts;
  for (int64_t i = 0; i < parts; ++i)
    p.norm({.x = x + i * p.a.group,
            .weight = p.weight + i * p.a.group % p.weight_size,
            .y = y + i * p.a.group,
            .rows = groups,
            .cols = p.a.group,
            .eps = p.a.eps});
  if (!p.a.gates_first) p.silu_mul(gate);
}

/// Runs a task of gated_norm or sigmoid_mul. kRows(p, begin, end, y) computes whole rows.
template <auto kRows, class Params>
void run_gated_norm(const Params& p, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  if (p.out.layouts.only_f32()) return kRows(p, tile.row_begin, tile.row_end, p.y + tile.row_begin * p.cols);
  p.out.write_parts(tile, p.out.rows.eval(step.sizes), worker.scratch, p.y,
                    [&](const Tile& part, float* rows) { kRows(p, part.row_begin, part.row_end, rows); });
}
template <auto kRows, class Params>
Status add_stage(LowerContext& c, std::shared_ptr<Params> params) {
  params->cols = c.out().shape[1].constant();
  REDLINE_ASSIGN(params->out, PreparedOutput::make(c));
  LoweredStage stage = c.output_stage<run_gated_norm<kRows, Params>>(params);
  stage.grid.row_parts = c.workers();
  stage.row_cuts = RowCuts::kAtRows;
  stage.read(params->x, c.op().inputs[0], Reads::kTile);
  stage.read(params->gate, c.op().inputs[1], Reads::kTile);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

Status lower_gated_norm(LowerContext& c) {
  auto params = std::make_shared<GatedNormParams>();
  params->norm = c.kernels().rms_norm;
  params->silu_mul = c.kernels().silu_mul;
  params->a = std::any_cast<const GatedNormAttrs&>(c.op().attrs);
  params->weight_size = c.in(2).shape[0].constant();
  REDLINE_ASSIGN(params->weight, c.dense_weight(2));
  return add_stage<norm_rows>(c, std::move(params));
}

struct MulParams {
  void (*exp)(const ExpArgs&);
  int64_t cols;
  PreparedOutput out;
  Operand<const float> x, gate;
  Operand<float> y;
};

void mul_rows(const MulParams& p, int64_t begin, int64_t end, float* y) {
  const int64_t at = begin * p.cols, count = (end - begin) * p.cols;
  for (int64_t i = 0; i < count; ++i) y[i] = -p.gate[at + i];
  p.exp({.x = y, .y = y, .count = count});
  for (int64_t i = 0; i < count; ++i) y[i] = p.x[at + i] / (1 + y[i]);
}

Status lower_mul(LowerContext& c) {
  auto params = std::make_shared<MulParams>();
  params->exp = c.kernels().exp;
  return add_stage<mul_rows>(c, std::move(params));
}

constexpr CpuLowering kGatedNormOps[] = {{&kGatedNorm, lower_gated_norm}, {&kSigmoidMul, lower_mul}};

}  // namespace

extern const CpuLowerings kGatedNormLowerings = kGatedNormOps;

}  // namespace redline
