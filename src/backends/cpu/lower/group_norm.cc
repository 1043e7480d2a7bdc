#include "graph/ops/group_norm.h"

#include "backends/cpu/lowering.h"
#include "backends/cpu/prepared_output.h"
#include "graph/items.h"
#include "kernels/cpu/group_norm.h"

namespace redline {
namespace {

static_assert(kGroupNormMaxChannels <= kMaxGroupNormChannels);

struct Attrs {
  void (*kernel)(const GroupNormArgs&);
  GroupNormOpAttrs op;
  int64_t channels;
  int workers;
  bool prepared;
  PreparedOutput out;
};

// operands: x, sums
void run_sums(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  const int64_t batch = a.op.batch.eval(step.sizes), pixels = a.op.pixels.eval(step.sizes);
  if (pixels == 0) return;
  const int64_t parts = group_norm_parts(pixels), groups = a.op.norm.groups;
  GroupNormArgs args = {};
  args.channels = a.channels;
  args.groups = groups;
  args.scratch = worker.scratch;
  for_items(batch * parts * tile.index / a.workers, batch * parts * (tile.index + 1) / a.workers, parts,
            [&](int64_t item, int64_t begin, int64_t end) {
              for (int64_t part = begin - item * parts; part < end - item * parts; ++part) {
                const int64_t row = group_norm_part_begin(pixels, part);
                args.x = stage.operand<float>(0) + (item * pixels + row) * a.channels;
                args.rows = group_norm_part_begin(pixels, part + 1) - row;
                args.sums = stage.operand<float>(1) + (item * kGroupNormMaxParts + part) * 2 * groups;
                a.kernel(args);
              }
            });
}

// operands: x, sums, weight, bias, y
void run_norm(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  const int64_t pixels = a.op.pixels.eval(step.sizes), rows = a.op.batch.eval(step.sizes) * pixels;
  auto* scale = static_cast<float*>(worker.buffer);
  GroupNormArgs args = {};
  args.channels = a.channels;
  args.scale = scale;
  args.shift = scale + a.channels;
  args.silu = a.op.norm.silu;
  auto norm = [&](const Tile& part, float* y) {
    args.x = stage.operand<float>(0) + part.row_begin * a.channels;
    args.rows = part.row_end - part.row_begin;
    args.y = y;
    a.kernel(args);
  };
  for_items(tile.row_begin, tile.row_end, pixels, [&](int64_t item, int64_t begin, int64_t end) {
    group_norm_scale(stage.operand<float>(1), item, pixels, a.channels, a.op.norm, stage.operand<float>(2),
                     stage.operand<float>(3), scale, scale + a.channels);
    Tile part = tile;
    part.row_begin = begin;
    part.row_end = end;
    if (a.prepared) a.out.write_parts(part, rows, worker.scratch, stage.operands[4], norm);
    else norm(part, stage.operand<float>(4) + begin * a.channels);
  });
}

std::shared_ptr<Attrs> make_attrs(const LowerContext& c) {
  auto attrs = std::make_shared<Attrs>();
  attrs->op = std::any_cast<const GroupNormOpAttrs&>(c.op().attrs);
  attrs->channels = c.in(0).shape[1].constant();
  attrs->workers = c.workers();
  return attrs;
}

Status lower_sums(LowerContext& c) {
  auto attrs = make_attrs(c);
  attrs->kernel = c.kernels().group_norm_sums;
  // Tasks divide the parts that items have at this step's sizes, so each task must run in every step.
  LoweredStage stage = c.output_stage(run_sums);
  stage.rows = stage.row_tiles = c.workers();
  stage.reads = {{c.op().inputs[0], Reads::kAll}};
  stage.attrs = std::move(attrs);
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(c.op().outputs[0])});
  return {};
}

Status lower_norm(LowerContext& c) {
  const auto& in = c.op().inputs;
  auto attrs = make_attrs(c);
  attrs->kernel = c.kernels().group_norm;
  attrs->prepared = !c.out().layouts.only_f32();
  REDLINE_ASSIGN(attrs->out, PreparedOutput::make(c));
  REDLINE_ASSIGN(void* weight, c.dense_weight(2));
  REDLINE_ASSIGN(void* bias, c.dense_weight(3));
  LoweredStage stage = c.output_stage(run_norm);
  stage.row_tiles = c.workers();
  stage.buffer_bytes = 2 * attrs->channels * int64_t{sizeof(float)};
  stage.reads = {{in[0], Reads::kTile}, {in[1], Reads::kAll}};
  if (!attrs->prepared) stage.in_place_of = in[0];
  stage.attrs = std::move(attrs);
  c.add_stage(std::move(stage), {c.at(in[0]), c.at(in[1]), c.at(weight), c.at(bias), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

extern const CpuLowering kGroupNormSumsLowering = {&kGroupNormSums, lower_sums};
extern const CpuLowering kGroupNormLowering = {&kGroupNorm, lower_norm};

}  // namespace redline
