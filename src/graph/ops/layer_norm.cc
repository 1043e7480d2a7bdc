#include "graph/ops/layer_norm.h"

#include <cmath>

#include "graph/items.h"
#include "graph/lower.h"
#include "graph/prepared_output.h"
#include "graph/reference.h"
#include "kernels/cpu/layer_norm.h"

namespace redline {
namespace {

/// Of both ops: one has weights for all rows, the other a row of a table for each item.
struct NormOp {
  LayerNormAttrs norm;
  bool has_weight = false, has_bias = false;
  bool modulated = false;  ///< input 1 is the table
  int64_t shift = -1, scale = -1;
  Dim rows_per_item = 1;
};

Status check_x(const GraphBuilder& g, const OpDef& op, Value x) {
  const ValueInfo& xi = g.info(x);
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || !xi.shape[1].is_constant())
    return invalid_argument("{}: x must be f32 [rows, cols], not {}", op.name, to_string(xi.shape));
  return {};
}

}  // namespace

Value layer_norm(GraphBuilder& g, Value x, Value weight, Value bias, LayerNormAttrs attrs) {
  if (!x.valid()) return {};
  if (Status status = check_x(g, kLayerNorm, x); !status.ok()) return g.fail(std::move(status));
  const ValueInfo& xi = g.info(x);
  std::vector<Value> inputs = {x};
  for (Value v : {weight, bias}) {
    if (!v.valid()) continue;
    const ValueInfo& w = g.info(v);
    if (w.shape.size() != 1 || !(w.shape[0] == xi.shape[1]))
      return g.fail(
          invalid_argument("layer_norm: {} is {}, expected [{}]", w.name, to_string(w.shape), xi.shape[1].to_string()));
    inputs.push_back(v);
  }
  NormOp op;
  op.norm = attrs;
  op.has_weight = weight.valid();
  op.has_bias = bias.valid();
  return g.add(kLayerNorm, inputs, DType::kF32, xi.shape, op);
}

Value modulated_norm(GraphBuilder& g, Value x, Modulation m, LayerNormAttrs attrs) {
  if (!x.valid() || !m.table.valid()) return {};
  if (Status status = check_x(g, kModulatedNorm, x); !status.ok()) return g.fail(std::move(status));
  const ValueInfo& xi = g.info(x);
  const ValueInfo& table = g.info(m.table);
  if (table.dtype != DType::kF32 || table.shape.size() != 2 || !table.shape[1].is_constant())
    return g.fail(
        invalid_argument("modulated_norm: the table must be f32 [batch, columns], not {}", to_string(table.shape)));
  const int64_t cols = xi.shape[1].constant(), columns = table.shape[1].constant();
  if (m.scale < 0 || m.scale + cols > columns || m.shift < -1 || m.shift + cols > columns)
    return g.fail(invalid_argument("modulated_norm: {} columns from {} (scale) and {} (shift) of a table of {}", cols,
                                   m.scale, m.shift, columns));
  if (!(xi.shape[0] == table.shape[0] * m.rows_per_item))
    return g.fail(invalid_argument("modulated_norm: x has {} rows, the table {} of {} rows each",
                                   xi.shape[0].to_string(), table.shape[0].to_string(), m.rows_per_item.to_string()));
  NormOp op;
  op.norm = attrs;
  op.modulated = true;
  op.shift = m.shift;
  op.scale = m.scale;
  op.rows_per_item = m.rows_per_item;
  return g.add(kModulatedNorm, {x, m.table}, DType::kF32, xi.shape, op);
}

namespace {

Status reference(ReferenceContext& c) {
  const HostTensor& x = c.in(0);
  const auto& op = c.attrs<NormOp>();
  const int64_t cols = x.cols();
  for (int64_t r = 0; r < x.rows(); ++r) {
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < cols && op.norm.centred; ++i) mean += x.row(r)[i] / static_cast<double>(cols);
    for (int64_t i = 0; i < cols; ++i) squares += (x.row(r)[i] - mean) * (x.row(r)[i] - mean);
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(cols) + double{op.norm.eps});
    const double* item = op.modulated ? c.in(1).row(r / op.rows_per_item.eval(c.sizes())) : nullptr;
    for (int64_t i = 0; i < cols; ++i) {
      double y = (x.row(r)[i] - mean) * inverse;
      if (op.has_weight) y *= c.in(1).data[static_cast<size_t>(i)];
      if (op.has_bias) y += c.in(op.has_weight ? 2 : 1).data[static_cast<size_t>(i)];
      if (op.modulated) y *= 1 + item[op.scale + i];
      if (op.modulated && op.shift >= 0) y += item[op.shift + i];
      c.out().row(r)[i] = y;
    }
  }
  return {};
}

struct Attrs {
  void (*kernel)(const LayerNormArgs&);
  NormOp op;
  int64_t table_columns;
  bool prepared;
  PreparedOutput out;
};

// operands: x, y, weight or table, bias
void run(const Stage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  const int64_t cols = a.out.cols;
  LayerNormArgs args = {};
  args.x_stride = args.y_stride = args.cols = cols;
  args.eps = a.op.norm.eps;
  args.centred = a.op.norm.centred;
  auto norm = [&](const Tile& part, float* y) {
    if (!a.op.modulated) {
      args.x = stage.operand<float>(0) + part.row_begin * cols;
      args.y = y;
      args.rows = part.row_end - part.row_begin;
      args.weight = stage.operand<float>(2);
      args.bias = stage.operand<float>(3);
      return a.kernel(args);
    }
    for_items(part.row_begin, part.row_end, a.op.rows_per_item.eval(step.sizes),
              [&](int64_t item, int64_t begin, int64_t end) {
                const float* table = stage.operand<float>(2) + item * a.table_columns;
                args.x = stage.operand<float>(0) + begin * cols;
                args.y = y + (begin - part.row_begin) * cols;
                args.rows = end - begin;
                args.scale = table + a.op.scale;
                args.shift = a.op.shift < 0 ? nullptr : table + a.op.shift;
                a.kernel(args);
              });
  };
  if (a.prepared) a.out.write_parts(tile, a.out.rows.eval(step.sizes), worker.scratch, stage.operands[1], norm);
  else norm(tile, stage.operand<float>(1) + tile.row_begin * cols);
}

Status lower(LowerContext& c) {
  const auto& in = c.op().inputs;
  const auto& op = std::any_cast<const NormOp&>(c.op().attrs);
  auto attrs = std::make_shared<Attrs>();
  attrs->kernel = c.kernels().layer_norm;
  attrs->op = op;
  attrs->prepared = !c.out().forms.only_f32();
  REDLINE_ASSIGN(attrs->out, PreparedOutput::make(c));
  Stage stage = c.output_stage(run);
  stage.row_tiles = c.workers();
  stage.reads = {{in[0], Reads::kTile}};
  if (!attrs->prepared) stage.in_place_of = in[0];
  LowerContext::Operand weight = c.at(static_cast<void*>(nullptr)), bias = weight;
  if (op.modulated) {
    attrs->table_columns = c.in(1).shape[1].constant();
    weight = c.at(in[1]);
    stage.reads.push_back({in[1], Reads::kAll});
  }
  if (op.has_weight) {
    REDLINE_ASSIGN(void* data, c.dense_weight(1));
    weight = c.at(data);
  }
  if (op.has_bias) {
    REDLINE_ASSIGN(void* data, c.dense_weight(op.has_weight ? 2 : 1));
    bias = c.at(data);
  }
  stage.attrs = attrs;
  c.add_stage(std::move(stage), {c.at(in[0]), c.at(c.op().outputs[0]), weight, bias});
  return {};
}

std::string describe(const std::any& any) {
  const auto& op = std::any_cast<const NormOp&>(any);
  std::string text = fmt::format("eps {}{}", op.norm.eps, op.norm.centred ? "" : " uncentred");
  if (op.modulated) text += fmt::format(" scale {} shift {}", op.scale, op.shift);
  return text;
}

}  // namespace

const OpDef kLayerNorm = {
    .name = "layer_norm", .reference = reference, .lower = lower, .describe = describe, .prepares_output = true};
const OpDef kModulatedNorm = {
    .name = "modulated_norm", .reference = reference, .lower = lower, .describe = describe, .prepares_output = true};

}  // namespace redline
