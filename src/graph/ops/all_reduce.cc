#include "graph/ops/all_reduce.h"

#include "graph/reference.h"

namespace redline {

Value all_reduce(GraphBuilder& g, std::span<const Value> parts, AllReduceAttrs attrs, Value after) {
  for (const Value part : parts)
    if (!part.valid()) return {};
  const int64_t expected = attrs.group ? 1 : attrs.ranks;
  if (attrs.ranks < 1 || std::ssize(parts) != expected)
    return g.fail(invalid_argument("all_reduce: {} parts of {} ranks; this graph computes {}", parts.size(),
                                   attrs.ranks, expected));
  if (attrs.group && attrs.group->size() != attrs.ranks)
    return g.fail(
        invalid_argument("all_reduce: a group of {} ranks for parts of {}", attrs.group->size(), attrs.ranks));
  if (attrs.group && attrs.exchange.empty()) return g.fail(invalid_argument("all_reduce: the exchange has no name"));
  const Shape shape = g.info(parts[0]).shape;
  for (const Value part : parts)
    if (g.info(part).dtype != DType::kF32 || g.info(part).shape.size() != 2 || g.info(part).shape != shape)
      return g.fail(invalid_argument("all_reduce: parts must be f32 [rows, cols] and alike; there are {} and {}",
                                     to_string(shape), to_string(g.info(part).shape)));
  if (attrs.ranks == 1) return parts[0];
  std::vector<Value> inputs(parts.begin(), parts.end());
  attrs.has_after = after.valid();
  if (after.valid()) inputs.push_back(after);
  return g.add(kAllReduce, inputs, DType::kF32, shape, std::move(attrs));
}

Dim all_reduce_bytes(const Graph& graph, const Op& op) {
  const auto& attrs = std::any_cast<const AllReduceAttrs&>(op.attrs);
  if (!attrs.group) return 0;
  return num_elements(graph.value(op.outputs[0]).shape) * Dim(int64_t{sizeof(float)} * (attrs.ranks - 1));
}

namespace {

Status all_reduce_reference(ReferenceContext& c) {
  const auto& attrs = c.attrs<AllReduceAttrs>();
  if (attrs.group) {
    c.out().data = c.in(0).data;
    RankExchange& round = attrs.group->exchange(attrs.exchange);
    std::vector<double>& sum = c.out().data;
    round.arrive(c.in(0).data.data(), static_cast<int64_t>(sum.size() * sizeof(double)));
    const std::span<const void* const> parts = round.parts();
    for (size_t r = 0; r < parts.size(); ++r)
      for (size_t i = 0; i < sum.size(); ++i) {
        const double value = static_cast<const double*>(parts[r])[i];
        sum[i] = r == 0 ? value : sum[i] + value;
      }
    round.leave();
    return attrs.group->status();
  }
  c.out().data = c.in(0).data;
  for (size_t r = 1; r < static_cast<size_t>(attrs.ranks); ++r)
    for (size_t i = 0; i < c.out().data.size(); ++i) c.out().data[i] += c.in(r).data[i];
  return {};
}

std::string describe_all_reduce(const std::any& any) {
  const auto& attrs = std::any_cast<const AllReduceAttrs&>(any);
  return attrs.group ? fmt::format("rank {} of {}", attrs.group->rank(), attrs.ranks)
                     : fmt::format("all {} ranks", attrs.ranks);
}

}  // namespace

const OpDef kAllReduce = {.name = "all_reduce", .reference = all_reduce_reference, .describe = describe_all_reduce};

}  // namespace redline
