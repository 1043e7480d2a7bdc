#include "graph/ops/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "graph/ops/kv_append.h"
#include "graph/reference.h"

namespace redline {
namespace {

Status check_attributes(const AttentionAttrs& a, const StateAttrs& kv, bool is_cross, bool has_slopes) {
  if (a.num_heads <= 0 || kv.num_heads <= 0 || a.num_heads % kv.num_heads != 0)
    return invalid_argument("attention: {} heads do not divide among {} key-value heads", a.num_heads, kv.num_heads);
  if (a.window < 0 || a.chunk < 0)
    return invalid_argument("attention: a window of {}, chunks of {}", a.window, a.chunk);
  if (!(a.soft_cap >= 0 && a.soft_cap < INFINITY)) return invalid_argument("attention: a soft cap of {}", a.soft_cap);
  if (is_cross && a.is_causal)
    return invalid_argument("attention: a state that the graph does not append to is read without is_causal");
  if (!a.is_causal && (a.window > 0 || a.chunk > 0 || has_slopes))
    return invalid_argument("attention: {} without is_causal", has_slopes    ? "slopes"
                                                               : a.chunk > 0 ? "chunks"
                                                                             : "a window");
  if (kv.window > 0 && !a.is_causal)
    return invalid_argument("attention: all positions of a cache that keeps {}", kv.window);
  const bool fits = (a.window > 0 && a.window <= kv.window) || (a.chunk > 0 && a.chunk <= kv.window);
  if (kv.window > 0 && !fits)
    return invalid_argument("attention: a window of {}{} over a cache that keeps {}", a.window,
                            a.chunk > 0 ? fmt::format(" and chunks of {}", a.chunk) : "", kv.window);
  return {};
}

Status check_heads_weight(const GraphBuilder& g, const char* name, Value weight, int64_t num_heads) {
  const ValueInfo& info = g.info(weight);
  if (info.kind == ValueKind::kWeight && info.shape == Shape{Dim(num_heads)}) return {};
  return invalid_argument("attention: {} are {}, expected a weight [{}]", name, to_string(info.shape), num_heads);
}

Status check_mask(const GraphBuilder& g, const AttentionMask& mask, const Dim& tokens) {
  if (!mask.ranges.valid() || !mask.blocks.valid())
    return invalid_argument("attention: a mask needs the ranges of tokens and the blocks");
  const auto check = [&](const char* name, Value value, const Shape& want) -> Status {
    const ValueInfo& info = g.info(value);
    if (info.dtype == DType::kI32 && info.shape == want) return {};
    return invalid_argument("attention: {} of the mask are {}, expected i32 {}", name, to_string(info.shape),
                            to_string(want));
  };
  REDLINE_TRY(check("ranges", mask.ranges, {tokens, Dim(2)}));
  if (g.info(mask.blocks).shape.size() != 1)
    return invalid_argument("attention: blocks of the mask are {}, expected i32 [entries]",
                            to_string(g.info(mask.blocks).shape));
  const Shape entries = g.info(mask.blocks).shape;
  REDLINE_TRY(check("blocks", mask.blocks, entries));
  return mask.bits.valid() ? check("bits", mask.bits, entries) : Status();
}

}  // namespace

Value attention(GraphBuilder& g, Value q, Value keys, AttentionAttrs a, const AttentionInputs& in) {
  if (!q.valid() || !keys.valid()) return {};
  AttentionOpAttrs attrs{a};
  attrs.is_cross = g.info(keys).kind == ValueKind::kState;
  Value cache = keys;
  if (!attrs.is_cross) {
    const Op* append = g.producer(keys);
    if (append == nullptr || append->def != &kKvAppend)
      return g.fail(invalid_argument("attention: {} is neither from kv_append nor a state", g.info(keys).name));
    cache = {append->inputs[2]};
  }
  const StateAttrs kv = g.info(cache).state;
  if (kv.kind != StateKind::kKeyValue)
    return g.fail(invalid_argument("attention: {} is not a key-value state", g.info(cache).name));
  attrs.has_sinks = in.sinks.valid();
  attrs.has_slopes = in.slopes.valid();
  attrs.has_mask = in.mask.ranges.valid() || in.mask.blocks.valid() || in.mask.bits.valid();
  attrs.has_bits = in.mask.bits.valid();
  if (Status status = check_attributes(a, kv, attrs.is_cross, attrs.has_slopes); !status.ok())
    return g.fail(std::move(status));
  const Dim tokens = g.info(q).shape[0];
  const Shape q_shape = {tokens, a.num_heads * kv.head_dim};
  if (g.info(q).dtype != DType::kF32 || g.info(q).shape != q_shape)
    return g.fail(invalid_argument("attention: q {} is not {} heads of {}", to_string(g.info(q).shape), a.num_heads,
                                   kv.head_dim));
  std::vector<Value> inputs = {q, keys, cache};
  for (const auto& [name, weight] : {std::pair{"sinks", in.sinks}, std::pair{"slopes", in.slopes}}) {
    if (!weight.valid()) continue;
    if (Status status = check_heads_weight(g, name, weight, a.num_heads); !status.ok())
      return g.fail(std::move(status));
    inputs.push_back(weight);
  }
  if (attrs.has_mask) {
    if (Status status = check_mask(g, in.mask, tokens); !status.ok()) return g.fail(std::move(status));
    inputs.insert(inputs.end(), {in.mask.ranges, in.mask.blocks});
    if (attrs.has_bits) inputs.push_back(in.mask.bits);
  }
  return g.add(kAttention, inputs, DType::kF32, q_shape, attrs);
}

std::vector<float> alibi_slopes(int64_t num_heads, float max_bias) {
  std::vector<float> slopes;
  const auto add = [&](int64_t power, int64_t numerator) {
    slopes.push_back(static_cast<float>(
        std::exp2(-static_cast<double>(max_bias) * static_cast<double>(numerator) / static_cast<double>(power))));
  };
  const auto whole = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(num_heads, 0))));
  for (int64_t h = 1; h <= whole; ++h) add(whole, h);
  for (int64_t h = 1; whole + h <= num_heads; ++h) add(2 * whole, 2 * h - 1);
  return slopes;
}

Status check_attention_order(const Graph& graph, const Op& op) {
  const auto state_of = [&](const Op& each) -> const StateAttrs& {
    return graph.value(each.inputs[AttentionOpAttrs::kCache]).state;
  };
  const StateAttrs& own = state_of(op);
  std::vector<bool> needed(graph.values.size(), false);
  const auto need = [&](const Op& each) {
    for (const ValueId id : each.inputs) needed[static_cast<size_t>(id)] = true;
  };
  bool is_before = false;  // the loop has passed `op`
  for (auto each = graph.ops.rbegin(); each != graph.ops.rend(); ++each) {
    if (each->outputs.front() == op.outputs.front()) {
      is_before = true;
      need(*each);
      continue;
    }
    if (!is_before) continue;
    const bool is_needed = std::any_of(each->outputs.begin(), each->outputs.end(),
                                       [&](ValueId id) { return needed[static_cast<size_t>(id)]; });
    if (is_needed) need(*each);
    if (each->def != &kAttention || state_of(*each).window != own.window || state_of(*each).group != own.group)
      continue;
    if (is_needed) return {};
    return unsupported("{} and {} read states of one group, and neither depends on the other", each->name, op.name);
  }
  return {};
}

std::vector<AttentionShape> attention_shapes(const Graph& graph) {
  std::vector<AttentionShape> shapes;
  for (const Op& op : graph.ops) {
    if (op.def != &kAttention) continue;
    const auto& attrs = std::any_cast<const AttentionOpAttrs&>(op.attrs);
    const StateAttrs& state = graph.value(op.inputs[AttentionOpAttrs::kCache]).state;
    auto shape = std::find_if(shapes.begin(), shapes.end(), [&](const AttentionShape& known) {
      return known.window == state.window && known.group == state.group;
    });
    if (shape == shapes.end())
      shape = shapes.insert(
          shape, {state.window, state.group, attrs.a.num_heads, state.num_heads, state.head_dim, true, true});
    shape->is_causal = shape->is_causal && attrs.a.is_causal;
    shape->rows_can_share =
        shape->rows_can_share && attrs.a.is_causal && attrs.a.chunk == 0 && !attrs.has_slopes && !attrs.has_mask;
  }
  return shapes;
}

namespace {

double capped(double score, double cap) { return cap > 0 ? cap * std::tanh(score / cap) : score; }

/// The positions that a token attends to.
std::vector<int64_t> visible_positions(ReferenceContext& c, const AttentionOpAttrs& op, int64_t row, int64_t position,
                                       int64_t length) {
  int64_t begin = 0;
  if (op.a.window > 0) begin = std::max(begin, position - op.a.window + 1);
  if (op.a.chunk > 0) begin = std::max(begin, position / op.a.chunk * op.a.chunk);
  const int64_t end = op.a.is_causal ? position + 1 : length;
  std::vector<int64_t> positions;
  if (!op.has_mask) {
    for (int64_t p = begin; p < end; ++p) positions.push_back(p);
    return positions;
  }
  const auto number = [&](size_t input, int64_t i) {
    return static_cast<int64_t>(c.in(input).data[static_cast<size_t>(i)]);
  };
  for (int64_t i = number(op.ranges(), 2 * row); i < number(op.ranges(), 2 * row + 1); ++i)
    for (int64_t j = 0; j < kKvPageTokens; ++j) {
      const int64_t p = number(op.blocks(), i) * kKvPageTokens + j;
      const bool is_set = !op.has_bits || (static_cast<uint32_t>(number(op.bits(), i)) >> j & 1) != 0;
      if (is_set && p >= begin && p < end) positions.push_back(p);
    }
  return positions;
}

/// Attention of one head of one token. `sink`: its logit, or -inf.
void attend_reference(const ReferenceState& cache, size_t sequence, int64_t head, int64_t position,
                      const std::vector<int64_t>& visible, const AttentionAttrs& a, double sink, double slope,
                      const double* q, double* y) {
  if (visible.empty()) return;
  const int64_t d = cache.attrs().head_dim;
  std::vector<double> weight(visible.size());
  double highest = sink;
  for (size_t i = 0; i < visible.size(); ++i) {
    const double* key = cache.key(sequence, visible[i], head);
    double dot = 0;
    for (int64_t e = 0; e < d; ++e) dot += q[e] * key[e];
    weight[i] = capped(dot * static_cast<double>(a.scale), static_cast<double>(a.soft_cap)) +
                slope * static_cast<double>(visible[i] - position);
    highest = std::max(highest, weight[i]);
  }
  double sum = std::exp(sink - highest);
  for (double& w : weight) sum += w = std::exp(w - highest);
  for (size_t i = 0; i < visible.size(); ++i) {
    const double* value = cache.value(sequence, visible[i], head);
    for (int64_t e = 0; e < d; ++e) y[e] += weight[i] / sum * value[e];
  }
}

Status attention_reference(ReferenceContext& c) {
  const auto& op = c.attrs<AttentionOpAttrs>();
  const HostTensor& q = c.in(0);
  const ReferenceState cache = c.state(AttentionOpAttrs::kCache);
  const int64_t group = op.a.num_heads / cache.attrs().num_heads, d = cache.attrs().head_dim;
  const auto of_head = [&](bool is_given, size_t input, int64_t h, double otherwise) {
    return is_given ? c.in(input).data[static_cast<size_t>(h)] : otherwise;
  };
  for (size_t s = 0; s < c.sequences().size(); ++s) {
    const SequenceRows& rows = c.sequences()[s];
    for (int64_t i = 0; i < rows.rows; ++i) {
      const int64_t row = rows.row_begin + i, position = rows.first_position + i;
      const std::vector<int64_t> visible = visible_positions(c, op, row, position, cache.length(s, rows));
      for (int64_t h = 0; h < op.a.num_heads; ++h)
        attend_reference(cache, s, h / group, position, visible, op.a, of_head(op.has_sinks, op.sinks(), h, -INFINITY),
                         of_head(op.has_slopes, op.slopes(), h, 0), q.row(row) + h * d, c.out().row(row) + h * d);
    }
  }
  return {};
}

std::string describe_attention(const std::any& any) {
  const auto& op = std::any_cast<const AttentionOpAttrs&>(any);
  const AttentionAttrs& a = op.a;
  return fmt::format("{} heads{}{}{}{}{}{}", a.num_heads, a.window > 0 ? fmt::format(", window {}", a.window) : "",
                     a.soft_cap > 0 ? fmt::format(", soft cap {}", a.soft_cap) : "",
                     a.chunk > 0 ? fmt::format(", chunks of {}", a.chunk) : "",
                     op.is_cross    ? ", cross"
                     : !a.is_causal ? ", not causal"
                                    : "",
                     op.has_slopes ? ", ALiBi" : "", op.has_mask ? ", mask" : "");
}

}  // namespace

const OpDef kAttention = {"attention", attention_reference, describe_attention};

}  // namespace redline
