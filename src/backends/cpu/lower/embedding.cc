#include "graph/ops/embedding.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct EmbeddingParams {
  void (*kernel)(const EmbeddingArgs&);
  const void* weight;
  int64_t vocab_size, hidden_size;
  Operand<const int32_t> tokens;
  Operand<float> y;
};

void run_embedding(const EmbeddingParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  p.kernel({.tokens = p.tokens + tile.row_begin,
            .rows = tile.row_end - tile.row_begin,
            .weight = p.weight,
            .vocab_size = p.vocab_size,
            .hidden_size = p.hidden_size,
            .y = p.y + tile.row_begin * p.hidden_size});
}

Status lower_embedding(LowerContext& c) {
  const ValueInfo& w = c.in(0);
  auto params = std::make_shared<EmbeddingParams>();
  params->kernel = c.kernels().embedding[static_cast<int>(w.dtype)];
  if (!params->kernel)
    return unsupported("{} has type {}, which the embedding kernels do not read", w.name, dtype_info(w.dtype).name);
  REDLINE_ASSIGN(params->weight, c.packed_weight(0));
  params->vocab_size = w.shape[0].constant();
  params->hidden_size = w.shape[1].constant();
  LoweredStage stage = c.output_stage<run_embedding>(params);
  stage.grid.row_parts = c.workers();
  stage.read(params->tokens, c.op().inputs[1], Reads::kRows);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

}  // namespace

extern const CpuLowering kEmbeddingLowering = {&kEmbedding, lower_embedding};

}  // namespace redline
