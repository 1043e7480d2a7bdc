#include "graph/ops/layer_norm.h"

#include "backends/cpu/lowering.h"
#include "backends/cpu/prepared_output.h"
#include "graph/items.h"
#include "kernels/cpu/layer_norm.h"

namespace redline {
namespace {

struct LayerNormParams {
  void (*kernel)(const LayerNormArgs&);
  LayerNormOpAttrs op;
  int64_t table_columns;
  bool prepared;
  PreparedOutput out;
  const float* weight;  // or nullptr, as the bias
  const float* bias;
  Operand<const float> x;
  Operand<const float> table;  // of the modulation
  Operand<float> y;
};

void run_layer_norm(const LayerNormParams& p, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const int64_t cols = p.out.cols;
  LayerNormArgs args = {};
  args.x_stride = args.y_stride = cols;
  args.cols = p.op.norm.group > 0 ? p.op.norm.group : cols;
  args.eps = p.op.norm.eps;
  args.centred = p.op.norm.centred;
  auto norm = [&](const Tile& part, float* y) {
    if (!p.op.modulated) {
      args.rows = part.row_end - part.row_begin;
      for (int64_t begin = 0; begin < cols; begin += args.cols) {
        args.x = p.x + part.row_begin * cols + begin;
        args.y = y + begin;
        args.weight = p.weight ? p.weight + begin : nullptr;
        args.bias = p.bias ? p.bias + begin : nullptr;
        p.kernel(args);
      }
      return;
    }
    for_items(part.row_begin, part.row_end, p.op.rows_per_item.eval(step.sizes),
              [&](int64_t item, int64_t begin, int64_t end) {
                const float* table = p.table + item * p.table_columns;
                args.x = p.x + begin * cols;
                args.y = y + (begin - part.row_begin) * cols;
                args.rows = end - begin;
                args.scale = table + p.op.scale;
                args.shift = p.op.shift < 0 ? nullptr : table + p.op.shift;
                p.kernel(args);
              });
  };
  if (p.prepared) p.out.write_parts(tile, p.out.rows.eval(step.sizes), worker.scratch, p.y, norm);
  else norm(tile, p.y + tile.row_begin * cols);
}

Status lower_layer_norm(LowerContext& c) {
  const auto& in = c.op().inputs;
  auto params = std::make_shared<LayerNormParams>();
  params->kernel = c.kernels().layer_norm;
  params->op = std::any_cast<const LayerNormOpAttrs&>(c.op().attrs);
  params->prepared = !c.out().layouts.only_f32();
  REDLINE_ASSIGN(params->out, PreparedOutput::make(c));
  if (params->op.has_weight) {
    REDLINE_ASSIGN(params->weight, c.dense_weight(1));
  }
  if (params->op.has_bias) {
    REDLINE_ASSIGN(params->bias, c.dense_weight(params->op.has_weight ? 2 : 1));
  }
  LoweredStage stage = c.output_stage<run_layer_norm>(params);
  stage.grid.row_parts = c.workers();
  stage.read(params->x, in[0], Reads::kTile);
  if (params->op.modulated) {
    params->table_columns = c.in(1).shape[1].constant();
    stage.read(params->table, in[1], Reads::kAll);
  }
  stage.write(params->y, c.op().outputs[0]);
  if (!params->prepared) stage.in_place_of = in[0];
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kLayerNormOps[] = {{&kLayerNorm, lower_layer_norm}, {&kModulatedNorm, lower_layer_norm}};

}  // namespace

extern const CpuLowerings kLayerNormLowerings = kLayerNormOps;

}  // namespace redline
