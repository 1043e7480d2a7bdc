#include "graph/ops/timestep_embedding.h"

#include <cmath>

#include "graph/lower.h"
#include "graph/reference.h"

namespace redline {

Value timestep_embedding(GraphBuilder& g, Value timestep, TimestepEmbeddingAttrs attrs) {
  if (!timestep.valid()) return {};
  const ValueInfo& t = g.info(timestep);
  if (t.dtype != DType::kF32 || t.shape.size() != 1)
    return g.fail(invalid_argument("timestep_embedding: timesteps are {}, not an f32 vector", to_string(t.shape)));
  if (attrs.cols < 2 || attrs.cols % 2 != 0 || !(static_cast<float>(attrs.cols / 2) > attrs.frequency_shift) ||
      !(attrs.max_period > 0))
    return g.fail(invalid_argument("timestep_embedding: {} columns, frequency shift {}, max period {}", attrs.cols,
                                   attrs.frequency_shift, attrs.max_period));
  return g.add(kTimestepEmbedding, {timestep}, DType::kF32, {t.shape[0], attrs.cols}, attrs);
}

namespace {

Status reference(ReferenceContext& c) {
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

// operands: timestep, y
void run(const Stage& stage, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto& a = stage.attrs_as<TimestepEmbeddingAttrs>();
  const auto* t = stage.operand<float>(0);
  auto* y = stage.operand<float>(1);
  const int64_t half = a.cols / 2;
  const auto log_period = static_cast<float>(-std::log(double{a.max_period}));
  for (int64_t k = 0; k < half; ++k) {
    // Each step is rounded to float32 as networks were trained with it: an angle of 1000 is off by 6e-5, more than all
    // else together, and must be off in the same way.
    const float w = std::exp(log_period * static_cast<float>(k) / (static_cast<float>(half) - a.frequency_shift));
    for (int64_t r = tile.row_begin; r < tile.row_end; ++r) {
      const float angle = a.scale * (t[r] * w);
      const auto cosine = static_cast<float>(std::cos(double{angle}));
      const auto sine = static_cast<float>(std::sin(double{angle}));
      y[r * a.cols + k] = a.cosine_first ? cosine : sine;
      y[r * a.cols + half + k] = a.cosine_first ? sine : cosine;
    }
  }
}

Status lower(LowerContext& c) {
  Stage stage = c.output_stage(run);
  stage.reads = {{c.op().inputs[0], Reads::kAll}};
  stage.attrs = std::make_shared<TimestepEmbeddingAttrs>(std::any_cast<const TimestepEmbeddingAttrs&>(c.op().attrs));
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

const OpDef kTimestepEmbedding = {"timestep_embedding", reference, lower};

}  // namespace redline
