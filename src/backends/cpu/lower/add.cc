#include "graph/ops/add.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct AddParams {
  void (*kernel)(const AddArgs&);
  int64_t cols;
  Operand<const float> a, b;
  const float* row;  // of add_row
  Operand<float> y;
};

void run_add(const AddParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  const int64_t at = tile.row_begin * p.cols;
  p.kernel({.a = p.a + at, .b = p.b + at, .y = p.y + at, .count = (tile.row_end - tile.row_begin) * p.cols});
}

void run_row(const AddParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  for (int64_t r = tile.row_begin; r < tile.row_end; ++r)
    p.kernel({.a = p.a + r * p.cols, .b = p.row, .y = p.y + r * p.cols, .count = p.cols});
}

std::shared_ptr<AddParams> make_params(const LowerContext& c) {
  auto params = std::make_shared<AddParams>();
  params->kernel = c.kernels().add;
  params->cols = c.out().shape[1].constant();
  return params;
}

Status lower_add(LowerContext& c) {
  const auto& in = c.op().inputs;
  auto params = make_params(c);
  LoweredStage stage = c.output_stage<run_add>(params);
  stage.grid.row_parts = c.workers();
  stage.read(params->a, in[0], Reads::kTile);
  stage.read(params->b, in[1], Reads::kTile);
  stage.write(params->y, c.op().outputs[0]);
  stage.in_place_of = in[0];
  c.add_stage(std::move(stage));
  return {};
}

Status lower_row(LowerContext& c) {
  auto params = make_params(c);
  REDLINE_ASSIGN(params->row, c.dense_weight(1));
  LoweredStage stage = c.output_stage<run_row>(params);
  stage.grid.row_parts = c.workers();
  stage.read(params->a, c.op().inputs[0], Reads::kTile);
  stage.write(params->y, c.op().outputs[0]);
  stage.in_place_of = c.op().inputs[0];
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kAddOps[] = {{&kAdd, lower_add}, {&kAddRow, lower_row}};

}  // namespace

extern const CpuLowerings kAddLowerings = kAddOps;

}  // namespace redline
