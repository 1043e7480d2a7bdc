#include "graph/ops/gated_add.h"

#include "graph/items.h"
#include "graph/lower.h"
#include "graph/reference.h"
#include "kernels/cpu/gated_add.h"

namespace redline {

Value gated_add(GraphBuilder& g, Value a, Value b, Value table, int64_t column, Dim rows_per_item) {
  if (!a.valid() || !b.valid() || !table.valid()) return {};
  const ValueInfo& ai = g.info(a);
  const ValueInfo& bi = g.info(b);
  const ValueInfo& ti = g.info(table);
  if (ai.dtype != DType::kF32 || ai.shape.size() != 2 || !ai.shape[1].is_constant() || bi.dtype != DType::kF32 ||
      ai.shape != bi.shape)
    return g.fail(invalid_argument("gated_add: {} and {} are not f32 matrices of one shape", to_string(ai.shape),
                                   to_string(bi.shape)));
  const int64_t cols = ai.shape[1].constant();
  if (ti.dtype != DType::kF32 || ti.shape.size() != 2 || !ti.shape[1].is_constant() || column < 0 ||
      column + cols > ti.shape[1].constant() || !(ai.shape[0] == ti.shape[0] * rows_per_item))
    return g.fail(invalid_argument("gated_add: table {} has no columns [{}, {}) for items of {} rows of {}",
                                   to_string(ti.shape), column, column + cols, rows_per_item.to_string(),
                                   to_string(ai.shape)));
  return g.add(kGatedAdd, {a, b, table}, DType::kF32, ai.shape, GatedAddAttrs{column, rows_per_item});
}

namespace {

Status reference(ReferenceContext& c) {
  const auto& op = c.attrs<GatedAddAttrs>();
  HostTensor& y = c.out();
  for (int64_t r = 0; r < y.rows(); ++r)
    for (int64_t i = 0; i < y.cols(); ++i)
      y.row(r)[i] =
          c.in(0).row(r)[i] + c.in(2).row(r / op.rows_per_item.eval(c.sizes()))[op.column + i] * c.in(1).row(r)[i];
  return {};
}

struct Attrs {
  void (*kernel)(const GatedAddArgs&);
  GatedAddAttrs op;
  int64_t table_columns;
};

// operands: a, b, table, y
void run(const Stage& stage, const Tile& tile, const StepContext& step, WorkerContext&) {
  const auto& a = stage.attrs_as<Attrs>();
  for_items(tile.row_begin, tile.row_end, a.op.rows_per_item.eval(step.sizes),
            [&](int64_t item, int64_t begin, int64_t end) {
              const int64_t at = begin * stage.cols;
              a.kernel({stage.operand<float>(0) + at, stage.operand<float>(1) + at,
                        stage.operand<float>(2) + item * a.table_columns + a.op.column, stage.operand<float>(3) + at,
                        end - begin, stage.cols});
            });
}

Status lower(LowerContext& c) {
  const auto& in = c.op().inputs;
  Stage stage = c.output_stage(run);
  stage.row_tiles = c.workers();
  stage.reads = {{in[0], Reads::kTile}, {in[1], Reads::kTile}, {in[2], Reads::kAll}};
  stage.in_place_of = in[0];
  stage.attrs = std::make_shared<Attrs>(
      Attrs{c.kernels().gated_add, std::any_cast<const GatedAddAttrs&>(c.op().attrs), c.in(2).shape[1].constant()});
  c.add_stage(std::move(stage), {c.at(in[0]), c.at(in[1]), c.at(in[2]), c.at(c.op().outputs[0])});
  return {};
}

std::string describe(const std::any& any) {
  return fmt::format("column {}", std::any_cast<const GatedAddAttrs&>(any).column);
}

}  // namespace

const OpDef kGatedAdd = {"gated_add", reference, lower, describe};

}  // namespace redline
