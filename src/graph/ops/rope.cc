#include "graph/ops/rope.h"

#include <algorithm>
#include <cmath>

#include "graph/lower.h"
#include "graph/reference.h"

namespace redline {

Value rope_table(GraphBuilder& g, Value positions, Value lengths, RopeTableAttrs attrs) {
  if (!positions.valid() || !lengths.valid()) return {};
  const Shape& shape = g.info(positions).shape;
  if (g.info(positions).dtype != DType::kI32 || shape.size() != 1 || g.info(lengths).shape != shape)
    return g.fail(invalid_argument("rope_table: positions and lengths must be i32 [tokens], not {}", to_string(shape)));
  if (attrs.inverse_frequencies.empty()) return g.fail(invalid_argument("rope_table: no frequencies"));
  const auto rotary_dim = static_cast<int64_t>(attrs.inverse_frequencies.size()) * 2;
  return g.add(kRopeTable, {positions, lengths}, DType::kF32, {shape[0], rotary_dim}, std::move(attrs));
}

Value rope(GraphBuilder& g, Value x, Value table, RopeAttrs attrs) {
  if (!x.valid() || !table.valid()) return {};
  const Shape& xs = g.info(x).shape;
  const Shape& ts = g.info(table).shape;
  if (xs.size() != 2 || !xs[1].is_constant() || attrs.head_dim <= 0 || xs[1].constant() % attrs.head_dim != 0)
    return g.fail(invalid_argument("rope: x {} is not [tokens, heads * {}]", to_string(xs), attrs.head_dim));
  if (ts.size() != 2 || !(ts[0] == xs[0]) || ts[1].constant() > attrs.head_dim)
    return g.fail(invalid_argument("rope: table {} does not fit x {} with heads of {}", to_string(ts), to_string(xs),
                                   attrs.head_dim));
  return g.add(kRope, {x, table}, DType::kF32, xs, attrs);
}

void rope_reference(const HostTensor& x, const HostTensor& table, int64_t head_dim, HostTensor& y) {
  const int64_t half = table.cols() / 2;
  for (int64_t t = 0; t < x.rows(); ++t)
    for (int64_t head = 0; head < x.cols(); head += head_dim) {
      const double* in = x.row(t) + head;
      double* out = y.row(t) + head;
      for (int64_t i = 0; i < half; ++i) {
        const double cosine = table.row(t)[i], sine = table.row(t)[half + i];
        out[i] = in[i] * cosine - in[i + half] * sine;
        out[i + half] = in[i + half] * cosine + in[i] * sine;
      }
      std::copy(in + 2 * half, in + head_dim, out + 2 * half);
    }
}

namespace {

// One row of the table: out[0, h) cosines, out[h, 2h) sines.
template <class T>
void table_row(const RopeTableAttrs& a, int32_t position, int32_t length, T* out) {
  const size_t half = a.inverse_frequencies.size();
  const auto& d = a.dynamic;
  double base = 0;
  if (d.original_context > 0 && length > d.original_context) {
    const double dim = static_cast<double>(half) * 2;
    base = d.base *
           std::pow(d.factor * length / static_cast<double>(d.original_context) - (d.factor - 1), dim / (dim - 2));
  }
  for (size_t i = 0; i < half; ++i) {
    const float frequency =
        base == 0 ? a.inverse_frequencies[i]
                  : static_cast<float>(1.0 / std::pow(base, static_cast<double>(i) / static_cast<double>(half)));
    const double angle = static_cast<float>(position) * frequency;
    out[i] = static_cast<T>(std::cos(angle) * a.attention_factor);
    out[half + i] = static_cast<T>(std::sin(angle) * a.attention_factor);
  }
}

Status table_reference(ReferenceContext& c) {
  for (int64_t t = 0; t < c.in(0).rows(); ++t)
    table_row(c.attrs<RopeTableAttrs>(), static_cast<int32_t>(c.in(0).data[static_cast<size_t>(t)]),
              static_cast<int32_t>(c.in(1).data[static_cast<size_t>(t)]), c.out().row(t));
  return {};
}

void table_run(const Stage& stage, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto& a = stage.attrs_as<RopeTableAttrs>();
  for (int64_t t = tile.row_begin; t < tile.row_end; ++t)
    table_row(a, stage.operand<int32_t>(0)[t], stage.operand<int32_t>(1)[t],
              stage.operand<float>(2) + t * static_cast<int64_t>(a.inverse_frequencies.size()) * 2);
}

Status table_lower(LowerContext& c) {
  Stage stage = c.output_stage(table_run);
  stage.row_tiles = c.workers();
  stage.reads = {{c.op().inputs[0], Reads::kRows}, {c.op().inputs[1], Reads::kRows}};
  stage.attrs = std::make_shared<RopeTableAttrs>(std::any_cast<const RopeTableAttrs&>(c.op().attrs));
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(c.op().inputs[1]), c.at(c.op().outputs[0])});
  return {};
}

Status apply_reference(ReferenceContext& c) {
  rope_reference(c.in(0), c.in(1), c.attrs<RopeAttrs>().head_dim, c.out());
  return {};
}

struct Attrs {
  void (*kernel)(const RopeArgs&);
  int64_t cols, head_dim, rotary_dim;
};

// A tile is some heads of all rows.
void rope_run(const Stage& stage, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto& a = stage.attrs_as<Attrs>();
  const int64_t heads = (tile.col_end - tile.col_begin) / a.head_dim;
  for (int64_t t = tile.row_begin; t < tile.row_end; ++t) {
    const int64_t at = t * a.cols + tile.col_begin;
    const float* table = stage.operand<float>(1) + t * a.rotary_dim;
    a.kernel({stage.operand<float>(0) + at, stage.operand<float>(2) + at, table, table + a.rotary_dim / 2, 1, heads,
              a.head_dim, a.rotary_dim});
  }
}

Status rope_lower(LowerContext& c) {
  const int64_t head_dim = std::any_cast<const RopeAttrs&>(c.op().attrs).head_dim;
  Stage stage = c.output_stage(rope_run);
  // Cut by heads like the projection before it: a tile starts when its heads are there.
  stage.col_begin = LowerContext::cut_columns(stage.cols, head_dim, c.workers());
  stage.reads = {{c.op().inputs[0], Reads::kTile}, {c.op().inputs[1], Reads::kRows}};
  stage.in_place_of = c.op().inputs[0];
  stage.attrs = std::make_shared<Attrs>(Attrs{c.kernels().rope, stage.cols, head_dim, c.in(1).shape[1].constant()});
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(c.op().inputs[1]), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

const OpDef kRopeTable = {"rope_table", table_reference, table_lower};
const OpDef kRope = {"rope", apply_reference, rope_lower};

}  // namespace redline
