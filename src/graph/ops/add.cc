#include "graph/ops/add.h"

#include "graph/lower.h"
#include "graph/reference.h"

namespace redline {

Value add(GraphBuilder& g, Value a, Value b) {
  if (!a.valid() || !b.valid()) return {};
  if (g.info(a).shape != g.info(b).shape || g.info(a).shape.size() != 2)
    return g.fail(
        invalid_argument("add: shapes {} and {} differ", to_string(g.info(a).shape), to_string(g.info(b).shape)));
  return g.add(kAdd, {a, b}, DType::kF32, g.info(a).shape);
}

Value add_row(GraphBuilder& g, Value x, Value row) {
  if (!x.valid() || !row.valid()) return {};
  const ValueInfo& xi = g.info(x);
  const ValueInfo& ri = g.info(row);
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || ri.shape.size() != 1 || !(ri.shape[0] == xi.shape[1]))
    return g.fail(invalid_argument("add_row: {} is {}, x is {}", ri.name, to_string(ri.shape), to_string(xi.shape)));
  return g.add(kAddRow, {x, row}, DType::kF32, xi.shape);
}

namespace {

Status reference(ReferenceContext& c) {
  for (size_t i = 0; i < c.out().data.size(); ++i) c.out().data[i] = c.in(0).data[i] + c.in(1).data[i];
  return {};
}

struct Attrs {
  void (*kernel)(const AddArgs&);
  int64_t cols;
};

void run(const Stage& stage, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto& a = stage.attrs_as<Attrs>();
  const int64_t at = tile.row_begin * a.cols;
  a.kernel({stage.operand<float>(0) + at, stage.operand<float>(1) + at, stage.operand<float>(2) + at,
            (tile.row_end - tile.row_begin) * a.cols});
}

Status lower(LowerContext& c) {
  Stage stage = c.output_stage(run);
  stage.row_tiles = c.workers();
  stage.reads = {{c.op().inputs[0], Reads::kTile}, {c.op().inputs[1], Reads::kTile}};
  stage.in_place_of = c.op().inputs[0];
  stage.attrs = std::make_shared<Attrs>(Attrs{c.kernels().add, stage.cols});
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(c.op().inputs[1]), c.at(c.op().outputs[0])});
  return {};
}

Status reference_row(ReferenceContext& c) {
  for (int64_t r = 0; r < c.out().rows(); ++r)
    for (int64_t i = 0; i < c.out().cols(); ++i)
      c.out().row(r)[i] = c.in(0).row(r)[i] + c.in(1).data[static_cast<size_t>(i)];
  return {};
}

// operands: x, row, y
void run_row(const Stage& stage, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto& a = stage.attrs_as<Attrs>();
  for (int64_t r = tile.row_begin; r < tile.row_end; ++r)
    a.kernel(
        {stage.operand<float>(0) + r * a.cols, stage.operand<float>(1), stage.operand<float>(2) + r * a.cols, a.cols});
}

Status lower_row(LowerContext& c) {
  REDLINE_ASSIGN(void* row, c.dense_weight(1));
  Stage stage = c.output_stage(run_row);
  stage.row_tiles = c.workers();
  stage.reads = {{c.op().inputs[0], Reads::kTile}};
  stage.in_place_of = c.op().inputs[0];
  stage.attrs = std::make_shared<Attrs>(Attrs{c.kernels().add, stage.cols});
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(row), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

const OpDef kAdd = {"add", reference, lower};
const OpDef kAddRow = {"add_row", reference_row, lower_row};

}  // namespace redline
