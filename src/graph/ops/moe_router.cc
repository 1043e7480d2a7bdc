#include "graph/ops/moe_router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/reference.h"

namespace redline {

Routing moe_router(GraphBuilder& g, Value logits, Value bias, const RouterAttrs& a) {
  if (!logits.valid()) return {};
  const Shape shape = g.info(logits).shape;
  const auto refuse = [&](Status status) {
    g.fail(std::move(status));
    return Routing{};
  };
  if (g.info(logits).dtype != DType::kF32 || shape.size() != 2 || !(shape[1] == Dim(a.num_experts)))
    return refuse(
        invalid_argument("moe_router: logits are {}, expected [tokens, {}]", to_string(shape), a.num_experts));
  if (a.num_groups < 1 || a.groups_per_token < 1 || a.groups_per_token > a.num_groups || a.num_experts < 1 ||
      a.num_experts % a.num_groups != 0 || (a.groups_by_two_best && a.num_experts < 2 * a.num_groups))
    return refuse(invalid_argument("moe_router: {} experts in {} groups, of which a token has {}", a.num_experts,
                                   a.num_groups, a.groups_per_token));
  const int64_t offered = a.num_experts / a.num_groups * a.groups_per_token;
  if (a.experts_per_token < 1 || a.experts_per_token > offered)
    return refuse(
        invalid_argument("moe_router: {} experts for each token of {} to choose from", a.experts_per_token, offered));
  std::vector<Value> inputs = {logits};
  if (bias.valid()) {
    const ValueInfo& b = g.info(bias);
    if (b.kind != ValueKind::kWeight || b.shape.size() != 1 || !(b.shape[0] == Dim(a.num_experts)))
      return refuse(invalid_argument("moe_router: {} is {}, expected [{}]", b.name, to_string(b.shape), a.num_experts));
    inputs.push_back(bias);
  }
  const Dim pairs = shape[0] * Dim(a.experts_per_token);
  Routing routing;
  routing.weights = g.add(kMoeRouter, inputs, DType::kF32, {shape[0], Dim(a.experts_per_token)}, a);
  routing.offsets = g.add_output(routing.weights, "offsets", DType::kI32, {Dim(a.num_experts + 1)});
  routing.order = g.add_output(routing.weights, "order", DType::kI32, {pairs});
  return routing;
}

template <class T>
void choose_experts(const RouterAttrs& a, const T* scores, const T* bias, T* keys, int32_t* chosen, T* weights) {
  // Experts that are not available have the key -infinity, and no other has: NaN counts as the lowest number.
  constexpr T kLowest = std::numeric_limits<T>::lowest(), kOut = -std::numeric_limits<T>::infinity();
  const auto at_least_lowest = [](T key) { return key > kLowest ? key : kLowest; };
  const auto take_best = [](T* from, int64_t count) {
    T* best = std::max_element(from, from + count);
    *best = kOut;
    return best - from;
  };
  for (int64_t e = 0; e < a.num_experts; ++e) keys[e] = at_least_lowest(bias ? scores[e] + bias[e] : scores[e]);
  if (a.groups_per_token < a.num_groups) {
    const int64_t size = a.num_experts / a.num_groups;
    T* const of_group = keys + a.num_experts;
    for (int64_t i = 0; i < a.num_groups; ++i) {
      T first = kOut, second = kOut;
      for (const T* key = keys + i * size; key != keys + (i + 1) * size; ++key) {
        second = std::max(second, std::min(first, *key));
        first = std::max(first, *key);
      }
      of_group[i] = at_least_lowest(a.groups_by_two_best ? first + second : first);
    }
    for (int64_t i = 0; i < a.groups_per_token; ++i) take_best(of_group, a.num_groups);
    for (int64_t e = 0; e < a.num_experts; ++e)
      if (of_group[e / size] != kOut) keys[e] = kOut;
  }
  T sum = 0;
  for (int64_t i = 0; i < a.experts_per_token; ++i) {
    chosen[i] = static_cast<int32_t>(take_best(keys, a.num_experts));
    weights[i] = scores[chosen[i]];
    sum += weights[i];
  }
  // All of a token's scores may be zero.
  const T divisor = a.normalizes ? std::max(sum, static_cast<T>(1e-20)) : static_cast<T>(1);
  for (int64_t i = 0; i < a.experts_per_token; ++i) weights[i] = weights[i] / divisor * static_cast<T>(a.scale);
}
template void choose_experts(const RouterAttrs&, const float*, const float*, float*, int32_t*, float*);
template void choose_experts(const RouterAttrs&, const double*, const double*, double*, int32_t*, double*);

namespace {

Status moe_router_reference(ReferenceContext& c) {
  const auto& a = c.attrs<RouterAttrs>();
  const HostTensor& logits = c.in(0);
  const double* bias = c.num_inputs() > 1 ? c.in(1).data.data() : nullptr;
  const auto experts = static_cast<size_t>(a.num_experts), choices = static_cast<size_t>(a.experts_per_token);
  std::vector<double> scores(experts), keys(experts + static_cast<size_t>(a.num_groups));
  std::vector<int32_t> chosen(choices);
  std::vector<std::vector<int64_t>> pairs(experts);
  for (int64_t t = 0; t < logits.rows(); ++t) {
    const double* x = logits.row(t);
    const double top = *std::max_element(x, x + a.num_experts);
    double sum = 0;
    for (size_t e = 0; e < experts; ++e) sum += std::exp(x[e] - top);
    for (size_t e = 0; e < experts; ++e)
      scores[e] = a.score == RouterScore::kSoftmax ? std::exp(x[e] - top) / sum : 1 / (1 + std::exp(-x[e]));
    choose_experts(a, scores.data(), bias, keys.data(), chosen.data(), c.out().row(t));
    for (size_t i = 0; i < choices; ++i)
      pairs[static_cast<size_t>(chosen[i])].push_back(t * a.experts_per_token + static_cast<int64_t>(i));
  }
  size_t at = 0;
  for (size_t e = 0; e < experts; ++e) {
    for (const int64_t pair : pairs[e]) c.out(2).data[at++] = static_cast<double>(pair);
    c.out(1).data[e + 1] = static_cast<double>(at);
  }
  return {};
}

std::string describe_moe_router(const std::any& any) {
  const auto& a = std::any_cast<const RouterAttrs&>(any);
  std::string text =
      fmt::format("{} of {}, {}{}", a.experts_per_token, a.num_experts,
                  a.score == RouterScore::kSoftmax ? "softmax" : "sigmoid", a.normalizes ? ", normalized" : "");
  if (a.groups_per_token < a.num_groups) text += fmt::format(", {} of {} groups", a.groups_per_token, a.num_groups);
  return text;
}

}  // namespace

const OpDef kMoeRouter = {.name = "moe_router", .reference = moe_router_reference, .describe = describe_moe_router};

}  // namespace redline
