#include "graph/ops/timestep_embedding.h"

#include <cmath>

#include "graph/reference.h"

namespace redline {

Value timestep_embedding(GraphBuilder& g, Value timestep, TimestepEmbeddingAttrs attrs) {
  if (!timestep.valid()) return {};
  const ValueInfo& t = g.info(timestep);
  if (t.dtype != DType::kF32 || t.shape.size() != 1)
    return g.fail(invalid_argument("timestep_embedding: timesteps are {}, not an f32 vector", to_string(t.shape)));
  const int64_t half = attrs.cols / 2;
  if (attrs.cols < 2 || attrs.cols % 2 != 0 || !(static_cast<float>(half) > attrs.frequency_shift) ||
      !(attrs.max_period > 0))
    return g.fail(invalid_argument("timestep_embedding: {} columns, frequency shift {}, max period {}", attrs.cols,
                                   attrs.frequency_shift, attrs.max_period));
  return g.add(kTimestepEmbedding, {timestep}, DType::kF32, {t.shape[0], attrs.cols}, attrs);
}

namespace {

Status timestep_embedding_reference(ReferenceContext& c) {
  const auto& a = c.attrs<TimestepEmbeddingAttrs>();
  const int64_t half = a.cols / 2;
  for (int64_t r = 0; r < c.out().rows(); ++r)
    for (int64_t k = 0; k < half; ++k) {
      const double w = std::exp(-std::log(double{a.max_period}) * static_cast<double>(k) /
                                (static_cast<double>(half) - double{a.frequency_shift}));
      const double angle = double{a.scale} * c.in(0).data[static_cast<size_t>(r)] * w;
      c.out().row(r)[k] = a.cosine_first ? std::cos(angle) : std::sin(angle);
      c.out().row(r)[half + k] = a.cosine_first ? std::sin(angle) : std::cos(angle);
    }
  return {};
}

}  // namespace

const OpDef kTimestepEmbedding = {"timestep_embedding", timestep_embedding_reference};

}  // namespace redline
