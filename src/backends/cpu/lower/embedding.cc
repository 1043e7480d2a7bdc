#include "graph/ops/embedding.h"

#include <algorithm>

#include "backends/cpu/linear_adapters.h"
#include "backends/cpu/lowering.h"

namespace redline {
namespace {

// Number of rows to which adapters are added at a time.
constexpr int64_t kAdaptedRows = 256;

struct EmbeddingParams {
  void (*kernel)(const EmbeddingArgs&);
  const void* weight;
  int64_t vocab_size, hidden_size;
  Operand<const int32_t> tokens;
  Operand<float> y;
  // Members for adapters. The buffer holds rows of their first factors, then the space that `up` needs.
  std::shared_ptr<AdapterSite> site;
  AdapterExpand up;
  int64_t up_buffer_at = 0;

  int64_t init_adapters(const LowerContext& c) {
    up = AdapterExpand::choose(c.kernels(), c.options().exact_f32);
    site->up_type = up.type;
    up_buffer_at = (kAdaptedRows * site->max_rank * int64_t{sizeof(float)} + 63) / 64 * 64;
    return up_buffer_at + up.buffer_bytes(kAdaptedRows, site->max_rank);
  }
};

void add_lookup_adapters(const EmbeddingParams& p, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  auto* t = static_cast<float*>(worker.buffer);
  LinearArgs args = {};
  args.out_features = args.y_stride = args.n_end = p.hidden_size;
  args.scratch = worker.scratch;
  for_adapted_rows(step.adapters, *p.site, step.sizes, tile.row_begin, tile.row_end, [&](const AdaptedRows& adapted) {
    for (const WeightedAdapter& each : adapted.adapters) {
      const AdapterFactors* factors = factors_at(each, *p.site);
      if (factors == nullptr) continue;
      const int64_t rank = factors->rank;
      const float scale = factors->scale * each.weight;
      for (int64_t row = adapted.begin; row < adapted.end; row += kAdaptedRows) {
        args.rows = std::min(kAdaptedRows, adapted.end - row);
        for (int64_t i = 0; i < args.rows; ++i) {
          const float* down = static_cast<const float*>(factors->down) + p.tokens[row + i] * rank;
          for (int64_t r = 0; r < rank; ++r) t[i * rank + r] = scale * down[r];
        }
        args.y = p.y + row * p.hidden_size;
        p.up.add(args, *factors, t, rank, adapted.segment_rows, static_cast<uint8_t*>(worker.buffer) + p.up_buffer_at);
      }
    }
  });
}

void run_embedding(const EmbeddingParams& p, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  p.kernel({.tokens = p.tokens + tile.row_begin,
            .rows = tile.row_end - tile.row_begin,
            .weight = p.weight,
            .vocab_size = p.vocab_size,
            .hidden_size = p.hidden_size,
            .y = p.y + tile.row_begin * p.hidden_size});
  if (p.site && !step.adapters.empty()) add_lookup_adapters(p, tile, step, worker);
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
  params->site = std::any_cast<const EmbeddingAttrs&>(c.op().attrs).adapters;
  LoweredStage stage = c.output_stage<run_embedding>(params);
  stage.grid.row_parts = c.workers();
  if (params->site) stage.buffer_bytes = params->init_adapters(c);
  stage.read(params->tokens, c.op().inputs[1], Reads::kRows);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kEmbeddingOps[] = {{&kEmbedding, lower_embedding}};

}  // namespace

extern const CpuLowerings kEmbeddingLowerings = kEmbeddingOps;

}  // namespace redline
