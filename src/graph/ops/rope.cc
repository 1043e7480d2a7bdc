#include "graph/ops/rope.h"

#include <algorithm>
#include <cmath>

#include "graph/reference.h"

namespace redline {

Value rope_table(GraphBuilder& g, Value positions, Value lengths, RopeTableAttrs attrs) {
  if (!positions.valid()) return {};
  if (lengths.valid() != attrs.depends_on_length())
    return g.fail(
        invalid_argument("rope_table: the input lengths is needed for dynamic and long scaling, and only for these"));
  const Shape& shape = g.info(positions).shape;
  const bool has_axes = !attrs.axes.empty();
  if (g.info(positions).dtype != DType::kI32 || shape.size() != (has_axes ? 2 : 1) ||
      (lengths.valid() && g.info(lengths).shape != Shape{shape[0]}))
    return g.fail(invalid_argument("rope_table: positions must be i32 {}, and lengths [tokens]; positions are {}",
                                   has_axes ? "[tokens, axes]" : "[tokens]", to_string(shape)));
  const int64_t num_axes = has_axes ? shape[1].constant() : 1;
  if (has_axes &&
      (attrs.axes.size() != attrs.inverse_frequencies.size() ||
       std::any_of(attrs.axes.begin(), attrs.axes.end(), [&](int32_t axis) { return axis < 0 || axis >= num_axes; })))
    return g.fail(invalid_argument("rope_table: axes must name one of {} axes for each of {} frequencies", num_axes,
                                   attrs.inverse_frequencies.size()));
  if (attrs.inverse_frequencies.empty()) return g.fail(invalid_argument("rope_table: no frequencies"));
  if (attrs.beyond.original_context > 0 && attrs.beyond.inverse_frequencies.size() != attrs.inverse_frequencies.size())
    return g.fail(invalid_argument("rope_table: {} frequencies, but {} frequencies for long sequences",
                                   attrs.inverse_frequencies.size(), attrs.beyond.inverse_frequencies.size()));
  const auto rotary_dim = static_cast<int64_t>(attrs.inverse_frequencies.size()) * 2;
  std::vector<Value> inputs = {positions};
  if (lengths.valid()) inputs.push_back(lengths);
  return g.add(kRopeTable, inputs, DType::kF32, {shape[0], rotary_dim}, std::move(attrs));
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

Status table_reference(ReferenceContext& c) {
  const auto& a = c.attrs<RopeTableAttrs>();
  for (int64_t t = 0; t < c.in(0).rows(); ++t)
    rope_table_row(a, c.in(0).row(t),
                   a.depends_on_length() ? static_cast<int32_t>(c.in(1).data[static_cast<size_t>(t)]) : 0,
                   c.out().row(t));
  return {};
}

Status apply_reference(ReferenceContext& c) {
  rope_reference(c.in(0), c.in(1), c.attrs<RopeAttrs>().head_dim, c.out());
  return {};
}

}  // namespace

const OpDef kRopeTable = {"rope_table", table_reference};

const OpDef kRope = {"rope", apply_reference};

}  // namespace redline
