#include "graph/ops/group_norm.h"

#include "backends/cpu/lowering.h"
#include "backends/cpu/prepared_output.h"
#include "graph/items.h"
#include "kernels/cpu/group_norm.h"

namespace redline {
namespace {

static_assert(kGroupNormMaxChannels <= kMaxGroupNormChannels);

struct SumsParams {
  void (*kernel)(const GroupNormArgs&);
  GroupNormOpAttrs op;
  int64_t channels;
  int workers;
  Operand<const float> x;
  Operand<float> sums;
};

// A task has a share of the parts that the items have at the sizes of the step.
void run_sums(const SumsParams& p, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const int64_t batch = p.op.batch.eval(step.sizes), pixels = p.op.pixels.eval(step.sizes);
  if (pixels == 0) return;
  const int64_t parts = group_norm_parts(pixels), groups = p.op.norm.groups;
  GroupNormArgs args = {};
  args.channels = p.channels;
  args.groups = groups;
  args.scratch = worker.scratch;
  for_items(batch * parts * tile.index / p.workers, batch * parts * (tile.index + 1) / p.workers, parts,
            [&](int64_t item, int64_t begin, int64_t end) {
              for (int64_t part = begin - item * parts; part < end - item * parts; ++part) {
                const int64_t row = group_norm_part_begin(pixels, part);
                args.x = p.x + (item * pixels + row) * p.channels;
                args.rows = group_norm_part_begin(pixels, part + 1) - row;
                args.sums = p.sums + (item * kGroupNormMaxParts + part) * 2 * groups;
                p.kernel(args);
              }
            });
}

Status lower_sums(LowerContext& c) {
  auto params = std::make_shared<SumsParams>();
  params->kernel = c.kernels().group_norm_sums;
  params->op = std::any_cast<const GroupNormOpAttrs&>(c.op().attrs);
  params->channels = c.in(0).shape[1].constant();
  params->workers = c.workers();
  auto stage =
      LoweredStage::make<run_sums>(TaskGrid::work_partitions(c.workers(), c.out().shape[1].constant()), params);
  stage.read(params->x, c.op().inputs[0], Reads::kAll);
  stage.write(params->sums, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

struct GroupNormParams {
  void (*kernel)(const GroupNormArgs&);
  GroupNormOpAttrs op;
  int64_t channels;
  bool prepared;
  PreparedOutput out;
  const float* weight;
  const float* bias;
  Operand<const float> x, sums;
  Operand<float> y;
};

void run_group_norm(const GroupNormParams& p, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const int64_t pixels = p.op.pixels.eval(step.sizes), rows = p.op.batch.eval(step.sizes) * pixels;
  auto* scale = static_cast<float*>(worker.buffer);
  GroupNormArgs args = {};
  args.channels = p.channels;
  args.scale = scale;
  args.shift = scale + p.channels;
  args.silu = p.op.norm.silu;
  auto norm = [&](const Tile& part, float* y) {
    args.x = p.x + part.row_begin * p.channels;
    args.rows = part.row_end - part.row_begin;
    args.y = y;
    p.kernel(args);
  };
  for_items(tile.row_begin, tile.row_end, pixels, [&](int64_t item, int64_t begin, int64_t end) {
    group_norm_scale(p.sums, item, pixels, p.channels, p.op.norm, p.weight, p.bias, scale, scale + p.channels);
    Tile part = tile;
    part.row_begin = begin;
    part.row_end = end;
    if (p.prepared) p.out.write_parts(part, rows, worker.scratch, p.y, norm);
    else norm(part, p.y + begin * p.channels);
  });
}

Status lower_group_norm(LowerContext& c) {
  const auto& in = c.op().inputs;
  auto params = std::make_shared<GroupNormParams>();
  params->kernel = c.kernels().group_norm;
  params->op = std::any_cast<const GroupNormOpAttrs&>(c.op().attrs);
  params->channels = c.in(0).shape[1].constant();
  params->prepared = !c.out().layouts.only_f32();
  REDLINE_ASSIGN(params->out, PreparedOutput::make(c));
  REDLINE_ASSIGN(params->weight, c.dense_weight(2));
  REDLINE_ASSIGN(params->bias, c.dense_weight(3));
  LoweredStage stage = c.output_stage<run_group_norm>(params);
  stage.grid.row_parts = c.workers();
  stage.buffer_bytes = 2 * params->channels * int64_t{sizeof(float)};
  stage.read(params->x, in[0], Reads::kTile);
  stage.read(params->sums, in[1], Reads::kAll);
  stage.write(params->y, c.op().outputs[0]);
  if (!params->prepared) stage.in_place_of = in[0];
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kGroupNormOps[] = {{&kGroupNormSums, lower_sums}, {&kGroupNorm, lower_group_norm}};

}  // namespace

extern const CpuLowerings kGroupNormLowerings = kGroupNormOps;

}  // namespace redline
