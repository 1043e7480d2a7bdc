#include "graph/ops/timestep_embedding.h"

#include <cmath>

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct TimestepEmbeddingParams {
  TimestepEmbeddingAttrs op;
  Operand<const float> timestep;
  Operand<float> y;
};

void run_timestep_embedding(const TimestepEmbeddingParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  const TimestepEmbeddingAttrs& a = p.op;
  const int64_t half = a.cols / 2;
  const auto log_period = static_cast<float>(-std::log(double{a.max_period}));
  for (int64_t k = 0; k < half; ++k) {
    // Every operation is rounded to float32, as during training: an angle of 1000 is off by 6e-5, the largest error of
    // the op, and the model was trained with that error.
    const float w = std::exp(log_period * static_cast<float>(k) / (static_cast<float>(half) - a.frequency_shift));
    for (int64_t r = tile.row_begin; r < tile.row_end; ++r) {
      const float angle = a.scale * (p.timestep[r] * w);
      const auto cosine = static_cast<float>(std::cos(double{angle}));
      const auto sine = static_cast<float>(std::sin(double{angle}));
      p.y[r * a.cols + k] = a.cosine_first ? cosine : sine;
      p.y[r * a.cols + half + k] = a.cosine_first ? sine : cosine;
    }
  }
}

Status lower_timestep_embedding(LowerContext& c) {
  auto params = std::make_shared<TimestepEmbeddingParams>();
  params->op = std::any_cast<const TimestepEmbeddingAttrs&>(c.op().attrs);
  LoweredStage stage = c.output_stage<run_timestep_embedding>(params);
  stage.read(params->timestep, c.op().inputs[0], Reads::kAll);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kTimestepEmbeddingOps[] = {{&kTimestepEmbedding, lower_timestep_embedding}};

}  // namespace

extern const CpuLowerings kTimestepEmbeddingLowerings = kTimestepEmbeddingOps;

}  // namespace redline
