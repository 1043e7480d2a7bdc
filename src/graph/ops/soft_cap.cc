#include "graph/ops/soft_cap.h"

#include <cmath>

#include "graph/reference.h"

namespace redline {

Value soft_cap(GraphBuilder& g, Value x, SoftCapAttrs attrs) {
  if (!x.valid()) return {};
  if (g.info(x).dtype != DType::kF32 || g.info(x).shape.size() != 2 || !g.info(x).shape[1].is_constant())
    return g.fail(invalid_argument("soft_cap: x must be f32 [rows, cols], not {}", to_string(g.info(x).shape)));
  if (!(attrs.cap > 0 && attrs.cap < INFINITY)) return g.fail(invalid_argument("soft_cap: a cap of {}", attrs.cap));
  return g.add(kSoftCap, {x}, DType::kF32, g.info(x).shape, attrs);
}

namespace {

Status soft_cap_reference(ReferenceContext& c) {
  const double cap = static_cast<double>(c.attrs<SoftCapAttrs>().cap);
  for (size_t i = 0; i < c.out().data.size(); ++i) c.out().data[i] = cap * std::tanh(c.in(0).data[i] / cap);
  return {};
}

std::string describe_soft_cap(const std::any& attrs) {
  return fmt::format("cap {}", std::any_cast<SoftCapAttrs>(attrs).cap);
}

}  // namespace

const OpDef kSoftCap = {"soft_cap", soft_cap_reference, describe_soft_cap};

}  // namespace redline
