#include "graph/ops/place_rows.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct PlaceRowsParams {
  void (*add)(const AddArgs&);
  bool adds;
  int64_t cols;
  Dim num_rows = 0;
  Operand<const float> x, rows;
  Operand<const int32_t> at;
  Operand<float> y;
};

// Copies x to y with some rows replaced or added. If the arena has given x and y the same address, only the rows that
// change are written.
void run_place_rows(const PlaceRowsParams& p, const Tile& tile, const StepContext& step, WorkerContext&) {
  const auto count = static_cast<size_t>(p.cols);
  if (p.y != p.x && tile.row_end > tile.row_begin)
    std::memcpy(p.y + tile.row_begin * p.cols, p.x + tile.row_begin * p.cols,
                static_cast<size_t>(tile.row_end - tile.row_begin) * count * sizeof(float));
  const int32_t* const end = p.at + p.num_rows.eval(step.sizes);
  for (const int32_t* at = std::lower_bound(static_cast<const int32_t*>(p.at), end, tile.row_begin);
       at != end && *at < tile.row_end; ++at) {
    float* const y = p.y + *at * p.cols;
    const float* const row = p.rows + (at - p.at) * p.cols;
    if (p.adds) p.add({.a = y, .b = row, .y = y, .count = p.cols});
    else std::memcpy(y, row, count * sizeof(float));
  }
}

Status lower_place_rows(LowerContext& c) {
  const auto& in = c.op().inputs;
  auto params = std::make_shared<PlaceRowsParams>();
  params->add = c.kernels().add;
  params->adds = std::any_cast<const PlaceRowsAttrs&>(c.op().attrs).adds;
  params->cols = c.out().shape[1].constant();
  params->num_rows = c.in(2).shape[0];
  LoweredStage stage = c.output_stage<run_place_rows>(params);
  stage.grid.row_parts = c.workers();
  stage.read(params->x, in[0], Reads::kTile);
  stage.read(params->rows, in[1], Reads::kAll);
  stage.read(params->at, in[2], Reads::kAll);
  stage.write(params->y, c.op().outputs[0]);
  stage.in_place_of = in[0];
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kPlaceRowsOps[] = {{&kPlaceRows, lower_place_rows}};

}  // namespace

extern const CpuLowerings kPlaceRowsLowerings = kPlaceRowsOps;

}  // namespace redline
