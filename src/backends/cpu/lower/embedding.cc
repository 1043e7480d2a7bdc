#include "graph/ops/embedding.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct Attrs {
  void (*kernel)(const EmbeddingArgs&);
  int64_t vocab_size, hidden_size;
};

void run(const CpuStage& stage, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto& a = stage.attrs_as<Attrs>();
  a.kernel({stage.operand<int32_t>(1) + tile.row_begin, tile.row_end - tile.row_begin, stage.operands[0], a.vocab_size,
            a.hidden_size, stage.operand<float>(2) + tile.row_begin * a.hidden_size});
}

Status lower(LowerContext& c) {
  const ValueInfo& w = c.in(0);
  auto* kernel = c.kernels().embedding[static_cast<int>(w.dtype)];
  if (!kernel)
    return unsupported("{} has type {}, which the embedding kernels do not read", w.name, dtype_info(w.dtype).name);
  REDLINE_ASSIGN(void* weight, c.packed_weight(0));
  LoweredStage stage = c.output_stage(run);
  stage.row_tiles = c.workers();
  stage.reads = {{c.op().inputs[1], Reads::kRows}};
  stage.attrs = std::make_shared<Attrs>(Attrs{kernel, w.shape[0].constant(), w.shape[1].constant()});
  c.add_stage(std::move(stage), {c.at(weight), c.at(c.op().inputs[1]), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

extern const CpuLowering kEmbeddingLowering = {&kEmbedding, lower};

}  // namespace redline
