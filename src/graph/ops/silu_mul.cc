#include "graph/ops/silu_mul.h"

#include <cmath>

#include "graph/lower.h"
#include "graph/reference.h"

namespace redline {

Value silu_mul(GraphBuilder& g, Value gate, Value up) {
  if (!gate.valid() || !up.valid()) return {};
  if (g.info(gate).shape != g.info(up).shape || g.info(gate).shape.size() != 2)
    return g.fail(
        invalid_argument("silu_mul: gate is {}, up is {}", to_string(g.info(gate).shape), to_string(g.info(up).shape)));
  return g.add(kSiluMul, {gate, up}, DType::kF32, g.info(gate).shape);
}

namespace {

Status reference(ReferenceContext& c) {
  for (size_t i = 0; i < c.out().data.size(); ++i) {
    const double v = c.in(0).data[i];
    c.out().data[i] = v / (1.0 + std::exp(-v)) * c.in(1).data[i];
  }
  return {};
}

struct Attrs {
  void (*kernel)(const SiluMulArgs&);
  int64_t cols;
};

void run(const Stage& stage, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto& a = stage.attrs_as<Attrs>();
  for (int64_t r = tile.row_begin; r < tile.row_end; ++r) {
    const int64_t at = r * a.cols + tile.col_begin;
    a.kernel({stage.operand<float>(0) + at, stage.operand<float>(1) + at, stage.operand<float>(2) + at,
              tile.col_end - tile.col_begin});
  }
}

Status lower(LowerContext& c) {
  Stage stage = c.output_stage(run);
  // Cut like the projections before it, so that a tile starts as soon as its part of gate and up is there.
  stage.col_begin = LowerContext::cut_columns(stage.cols, kStripRows, c.workers() * 2);
  stage.reads = {{c.op().inputs[0], Reads::kTile}, {c.op().inputs[1], Reads::kTile}};
  stage.in_place_of = c.op().inputs[0];
  stage.attrs = std::make_shared<Attrs>(Attrs{c.kernels().silu_mul, stage.cols});
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(c.op().inputs[1]), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

const OpDef kSiluMul = {"silu_mul", reference, lower};

}  // namespace redline
