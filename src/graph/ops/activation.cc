#include "graph/ops/activation.h"

#include <cmath>

#include "base/text_distance.h"
#include "graph/reference.h"

namespace redline {
namespace {

struct ActivationName {
  std::string_view name;
  Activation kind;
};

// The first name of each kind is the canonical one.
constexpr ActivationName kNames[] = {{"silu", Activation::kSilu},
                                     {"swish", Activation::kSilu},
                                     {"gelu", Activation::kGelu},
                                     {"gelu_tanh", Activation::kGeluTanh},
                                     {"gelu_new", Activation::kGeluTanh},
                                     {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                     {"gelu-approximate", Activation::kGeluTanh},
                                     {"quick_gelu", Activation::kQuickGelu},
                                     {"relu", Activation::kRelu},
                                     {"tanh", Activation::kTanh},
                                     {"tanh3", Activation::kTanh3}};

Status check_matrix(const GraphBuilder& g, const OpDef& op, Value x) {
  const ValueInfo& xi = g.info(x);
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || !xi.shape[1].is_constant())
    return invalid_argument("{}: {} must be f32 [rows, cols], not {}", op.name, xi.name, to_string(xi.shape));
  return {};
}

}  // namespace

std::string_view activation_name(Activation kind) {
  for (const ActivationName& row : kNames)
    if (row.kind == kind) return row.name;
  return "unknown";
}

Result<Activation> activation_from_name(std::string_view name) {
  std::string good;
  for (const ActivationName& row : kNames) {
    if (row.name == name) return row.kind;
    good += (good.empty() ? "" : ", ") + std::string(row.name);
  }
  return unsupported("activation {} is not known{}; known are {}", name, the_nearest(name, good), good);
}

double activation_of(Activation kind, double x) {
  switch (kind) {
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kGelu: return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    case Activation::kGeluTanh: return x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2;
    case Activation::kQuickGelu: return x / (1 + std::exp(-1.702 * x));
    case Activation::kRelu: return std::max(x, 0.0);
    case Activation::kTanh: return std::tanh(x);
    case Activation::kTanh3: return 3 * std::tanh(x / 3);
  }
  return x;
}

Value activation(GraphBuilder& g, Value x, Activation kind) {
  if (!x.valid()) return {};
  if (Status status = check_matrix(g, kActivation, x); !status.ok()) return g.fail(std::move(status));
  return g.add(kActivation, {x}, DType::kF32, g.info(x).shape, ActivationAttrs{kind});
}

Value gated_activation(GraphBuilder& g, Value gate, Value up, Activation kind) {
  if (!gate.valid()) return {};
  if (Status status = check_matrix(g, kGatedActivation, gate); !status.ok()) return g.fail(std::move(status));
  const Shape shape = g.info(gate).shape;
  if (up.valid()) {
    if (g.info(up).dtype != DType::kF32 || g.info(up).shape != shape)
      return g.fail(
          invalid_argument("gated_activation: gate is {}, up is {}", to_string(shape), to_string(g.info(up).shape)));
    return g.add(kGatedActivation, {gate, up}, DType::kF32, shape, ActivationAttrs{kind});
  }
  if (shape[1].constant() % 2 != 0)
    return g.fail(invalid_argument("gated_activation: {} has no two halves", to_string(shape)));
  return g.add(kGatedActivation, {gate}, DType::kF32, {shape[0], shape[1].constant() / 2}, ActivationAttrs{kind, true});
}

namespace {

Status activation_reference(ReferenceContext& c) {
  const auto& op = c.attrs<ActivationAttrs>();
  HostTensor& y = c.out();
  for (int64_t r = 0; r < y.rows(); ++r)
    for (int64_t i = 0; i < y.cols(); ++i) {
      const double gate = c.in(0).row(r)[op.halves ? y.cols() + i : i];
      const double up = op.halves ? c.in(0).row(r)[i] : c.num_inputs() > 1 ? c.in(1).row(r)[i] : 1.0;
      y.row(r)[i] = activation_of(op.kind, gate) * up;
    }
  return {};
}

std::string describe_activation(const std::any& any) {
  return std::string(activation_name(std::any_cast<const ActivationAttrs&>(any).kind));
}

}  // namespace

const OpDef kActivation = {
    .name = "activation", .reference = activation_reference, .describe = describe_activation, .prepares_output = true};

const OpDef kGatedActivation = {.name = "gated_activation",
                                .reference = activation_reference,
                                .describe = describe_activation,
                                .prepares_output = true};

}  // namespace redline
