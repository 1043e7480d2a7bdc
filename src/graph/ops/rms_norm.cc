#include "graph/ops/rms_norm.h"

#include <cmath>

namespace redline {

Value rms_norm(GraphBuilder& g, Value x, Value weight, RmsNormAttrs attrs) {
  if (!x.valid() || !weight.valid()) return {};
  const ValueInfo& xi = g.info(x);
  const ValueInfo& wi = g.info(weight);
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || !xi.shape[1].is_constant())
    return g.fail(invalid_argument("rms_norm: x must be f32 [rows, cols], not {}", to_string(xi.shape)));
  if (wi.shape.size() != 1)
    return g.fail(invalid_argument("rms_norm: {} must be a vector, not {}", wi.name, to_string(wi.shape)));
  const int64_t cols = wi.shape[0].constant();
  if (cols <= 0 || xi.shape[1].constant() % cols != 0)
    return g.fail(invalid_argument("rms_norm: {} has {} elements, the last axis of x has {}", wi.name, cols,
                                   xi.shape[1].constant()));
  return g.add(kRmsNorm, {x, weight}, DType::kF32, xi.shape, attrs);
}

void rms_norm_reference(const HostTensor& x, const HostTensor& weight, double eps, HostTensor& y) {
  const int64_t cols = weight.rows();
  for (int64_t r = 0; r < x.rows(); ++r)
    for (int64_t begin = 0; begin < x.cols(); begin += cols) {
      double sum = 0;
      for (int64_t i = 0; i < cols; ++i) sum += x.row(r)[begin + i] * x.row(r)[begin + i];
      const double scale = 1.0 / std::sqrt(sum / static_cast<double>(cols) + eps);
      for (int64_t i = 0; i < cols; ++i)
        y.row(r)[begin + i] = x.row(r)[begin + i] * scale * weight.data[static_cast<size_t>(i)];
    }
}

namespace {

Status rms_norm_reference(ReferenceContext& c) {
  rms_norm_reference(c.in(0), c.in(1), c.attrs<RmsNormAttrs>().eps, c.out());
  return {};
}

std::string describe_rms_norm(const std::any& attrs) {
  return fmt::format("eps {}", std::any_cast<RmsNormAttrs>(attrs).eps);
}

}  // namespace

const OpDef kRmsNorm = {
    .name = "rms_norm", .reference = rms_norm_reference, .describe = describe_rms_norm, .prepares_output = true};

}  // namespace redline
