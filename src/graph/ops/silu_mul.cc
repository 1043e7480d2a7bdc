#include "graph/ops/silu_mul.h"

#include <cmath>

#include "graph/reference.h"

namespace redline {

Value silu_mul(GraphBuilder& g, Value gate, Value up) {
  if (!gate.valid() || !up.valid()) return {};
  if (g.info(gate).shape != g.info(up).shape || g.info(gate).shape.size() != 2)
    return g.fail(
        invalid_argument("silu_mul: gate is {}, up is {}", to_string(g.info(gate).shape), to_string(g.info(up).shape)));
  return g.add(kSiluMul, {gate, up}, DType::kF32, g.info(gate).shape);
}

namespace {

Status silu_mul_reference(ReferenceContext& c) {
  for (size_t i = 0; i < c.out().data.size(); ++i) {
    const double v = c.in(0).data[i];
    c.out().data[i] = v / (1.0 + std::exp(-v)) * c.in(1).data[i];
  }
  return {};
}

}  // namespace

const OpDef kSiluMul = {"silu_mul", silu_mul_reference};

}  // namespace redline
