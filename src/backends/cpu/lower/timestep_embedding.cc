#include "graph/ops/timestep_embedding.h"

#include <cmath>

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

// operands: timestep, y
void run(const CpuStage& stage, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto& a = stage.attrs_as<TimestepEmbeddingAttrs>();
  const auto* t = stage.operand<float>(0);
  auto* y = stage.operand<float>(1);
  const int64_t half = a.cols / 2;
  const auto log_period = static_cast<float>(-std::log(double{a.max_period}));
  for (int64_t k = 0; k < half; ++k) {
    // Every operation is rounded to float32, as during training: an angle of 1000 is off by 6e-5, the largest error of
    // the op, and the model was trained with that error.
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
  LoweredStage stage = c.output_stage(run);
  stage.reads = {{c.op().inputs[0], Reads::kAll}};
  stage.attrs = std::make_shared<TimestepEmbeddingAttrs>(std::any_cast<const TimestepEmbeddingAttrs&>(c.op().attrs));
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

extern const CpuLowering kTimestepEmbeddingLowering = {&kTimestepEmbedding, lower};

}  // namespace redline
