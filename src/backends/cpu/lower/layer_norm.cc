#include "graph/ops/layer_norm.h"

#include "backends/cpu/lowering.h"
#include "backends/cpu/prepared_output.h"
#include "graph/items.h"
#include "kernels/cpu/layer_norm.h"

namespace redline {
namespace {

struct Attrs {
  void (*kernel)(const LayerNormArgs&);
  LayerNormOpAttrs op;
  int64_t table_columns;
  bool prepared;
  PreparedOutput out;
};

// operands: x, y, weight or table, bias
void run(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  const int64_t cols = a.out.cols;
  LayerNormArgs args = {};
  args.x_stride = args.y_stride = args.cols = cols;
  args.eps = a.op.norm.eps;
  args.centred = a.op.norm.centred;
  auto norm = [&](const Tile& part, float* y) {
    if (!a.op.modulated) {
      args.x = stage.operand<float>(0) + part.row_begin * cols;
      args.y = y;
      args.rows = part.row_end - part.row_begin;
      args.weight = stage.operand<float>(2);
      args.bias = stage.operand<float>(3);
      return a.kernel(args);
    }
    for_items(part.row_begin, part.row_end, a.op.rows_per_item.eval(step.sizes),
              [&](int64_t item, int64_t begin, int64_t end) {
                const float* table = stage.operand<float>(2) + item * a.table_columns;
                args.x = stage.operand<float>(0) + begin * cols;
                args.y = y + (begin - part.row_begin) * cols;
                args.rows = end - begin;
                args.scale = table + a.op.scale;
                args.shift = a.op.shift < 0 ? nullptr : table + a.op.shift;
                a.kernel(args);
              });
  };
  if (a.prepared) a.out.write_parts(tile, a.out.rows.eval(step.sizes), worker.scratch, stage.operands[1], norm);
  else norm(tile, stage.operand<float>(1) + tile.row_begin * cols);
}

Status lower(LowerContext& c) {
  const auto& in = c.op().inputs;
  const auto& op = std::any_cast<const LayerNormOpAttrs&>(c.op().attrs);
  auto attrs = std::make_shared<Attrs>();
  attrs->kernel = c.kernels().layer_norm;
  attrs->op = op;
  attrs->prepared = !c.out().layouts.only_f32();
  REDLINE_ASSIGN(attrs->out, PreparedOutput::make(c));
  LoweredStage stage = c.output_stage(run);
  stage.row_tiles = c.workers();
  stage.reads = {{in[0], Reads::kTile}};
  if (!attrs->prepared) stage.in_place_of = in[0];
  LowerContext::Operand weight = c.at(static_cast<void*>(nullptr)), bias = weight;
  if (op.modulated) {
    attrs->table_columns = c.in(1).shape[1].constant();
    weight = c.at(in[1]);
    stage.reads.push_back({in[1], Reads::kAll});
  }
  if (op.has_weight) {
    REDLINE_ASSIGN(void* data, c.dense_weight(1));
    weight = c.at(data);
  }
  if (op.has_bias) {
    REDLINE_ASSIGN(void* data, c.dense_weight(op.has_weight ? 2 : 1));
    bias = c.at(data);
  }
  stage.attrs = attrs;
  c.add_stage(std::move(stage), {c.at(in[0]), c.at(c.op().outputs[0]), weight, bias});
  return {};
}

}  // namespace

extern const CpuLowering kLayerNormLowering = {&kLayerNorm, lower};
extern const CpuLowering kModulatedNormLowering = {&kModulatedNorm, lower};

}  // namespace redline
