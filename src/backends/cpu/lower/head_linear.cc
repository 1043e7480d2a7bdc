#include "graph/ops/head_linear.h"

#include "backends/cpu/grouped_product.h"

namespace redline {
namespace {

struct HeadLinearParams {
  GroupMatrices heads;
  int64_t x_size, x_stride;  // elements of a head, and of a row
  int64_t y_stride;
  Operand<const float> x;
  Operand<float> y;
};

// A tile is whole heads: all rows of each.
void run_head_linear(const HeadLinearParams& p, const Tile& tile, const StepContext&, WorkerContext& worker) {
  const int64_t count = tile.row_end, n = p.heads.features;
  for (int64_t head = tile.col_begin / n; head < tile.col_end / n; ++head)
    for (int64_t row = 0; row < count; row += kGroupBlockRows) {
      const int64_t rows = std::min(kGroupBlockRows, count - row);
      const auto row_of = [&](int64_t r) { return p.x + (row + r) * p.x_stride + head * p.x_size; };
      const auto x = p.heads.prepared(count, rows, p.x_stride, row_of, worker.buffer);
      p.heads.multiply(static_cast<size_t>(head), count, x, rows, 0, n, p.y + row * p.y_stride + head * n, p.y_stride,
                       worker.scratch);
    }
}

Status lower_head_linear(LowerContext& c) {
  const auto heads = static_cast<size_t>(std::any_cast<const HeadAttrs&>(c.op().attrs).num_heads);
  auto params = std::make_shared<HeadLinearParams>();
  REDLINE_ASSIGN(params->heads, GroupMatrices::make(c, 1, heads));
  params->x_stride = c.in(0).shape[1].constant();
  params->x_size = params->x_stride / static_cast<int64_t>(heads);
  params->y_stride = c.out().shape[1].constant();
  LoweredStage stage = c.output_stage<run_head_linear>(params);
  constexpr int kTilesPerWorker = 2;
  stage.grid.col_begin =
      LowerContext::cut_columns(params->y_stride, params->heads.features, kTilesPerWorker * c.workers());
  stage.buffer_bytes =
      params->heads.prepared_bytes(std::min(kGroupBlockRows, stage.grid.rows.eval(c.options().bounds)));
  stage.read(params->x, c.op().inputs[0], Reads::kAll);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

struct ConcatParams {
  int64_t heads, a_size, b_size;
  Operand<const float> a, b;
  Operand<float> y;
};

void run_concat(const ConcatParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto copy = [](float* to, const float* from, int64_t count) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  };
  for (int64_t i = tile.row_begin * p.heads; i < tile.row_end * p.heads; ++i) {
    float* y = p.y + i * (p.a_size + p.b_size);
    copy(y, p.a + i * p.a_size, p.a_size);
    copy(y + p.a_size, p.b + i * p.b_size, p.b_size);
  }
}

Status lower_concat(LowerContext& c) {
  auto params = std::make_shared<ConcatParams>();
  params->heads = std::any_cast<const HeadAttrs&>(c.op().attrs).num_heads;
  params->a_size = c.in(0).shape[1].constant() / params->heads;
  params->b_size = c.in(1).shape[1].constant() / params->heads;
  LoweredStage stage = c.output_stage<run_concat>(params);
  stage.grid.row_parts = c.workers();
  stage.read(params->a, c.op().inputs[0], Reads::kRows);
  stage.read(params->b, c.op().inputs[1], Reads::kRows);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kHeadLinearOps[] = {{&kHeadLinear, lower_head_linear}, {&kConcatHeads, lower_concat}};

}  // namespace

extern const CpuLowerings kHeadLinearLowerings = kHeadLinearOps;

}  // namespace redline
