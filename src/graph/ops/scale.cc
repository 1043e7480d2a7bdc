#include "graph/ops/scale.h"

#include "graph/reference.h"

namespace redline {

Value scale(GraphBuilder& g, Value x, ScaleAttrs attrs) {
  if (!x.valid()) return {};
  if (g.info(x).dtype != DType::kF32 || g.info(x).shape.size() != 2)
    return g.fail(invalid_argument("scale: x must be f32 [rows, cols], not {}", to_string(g.info(x).shape)));
  return g.add(kScale, {x}, DType::kF32, g.info(x).shape, attrs);
}

namespace {

Status scale_reference(ReferenceContext& c) {
  const double factor = static_cast<double>(c.attrs<ScaleAttrs>().factor);
  for (size_t i = 0; i < c.out().data.size(); ++i) c.out().data[i] = factor * c.in(0).data[i];
  return {};
}

std::string describe_scale(const std::any& attrs) {
  return fmt::format("factor {}", std::any_cast<ScaleAttrs>(attrs).factor);
}

}  // namespace

const OpDef kScale = {"scale", scale_reference, describe_scale};

}  // namespace redline
