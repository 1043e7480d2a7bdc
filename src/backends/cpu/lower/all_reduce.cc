#include "graph/ops/all_reduce.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

/// Adds parts that are in memory of this process.
struct PartSum {
  void (*add)(const AddArgs&);
  int64_t cols;

  /// Sets y to ((p0 + p1) + p2) + ... for the rows of the tile.
  template <class Part>
  void run(const Tile& tile, int64_t parts, const Part& part, float* y) const {
    const int64_t at = tile.row_begin * cols, count = (tile.row_end - tile.row_begin) * cols;
    add({.a = part(0) + at, .b = part(1) + at, .y = y + at, .count = count});
    for (int64_t r = 2; r < parts; ++r) add({.a = y + at, .b = part(r) + at, .y = y + at, .count = count});
  }
};

/// The sum in a graph that has the parts of all ranks.
struct LocalSumParams {
  PartSum sum;
  std::vector<Operand<const float>> parts;
  Operand<float> y;
};

void run_local_sum(const LocalSumParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  p.sum.run(
      tile, std::ssize(p.parts), [&](int64_t r) -> const float* { return p.parts[static_cast<size_t>(r)]; }, p.y);
}

Status lower_local_sum(LowerContext& c, const AllReduceAttrs& attrs) {
  auto params = std::make_shared<LocalSumParams>();
  params->sum = {c.kernels().add, c.out().shape[1].constant()};
  params->parts.resize(static_cast<size_t>(attrs.ranks));
  LoweredStage stage = c.output_stage<run_local_sum>(params);
  stage.grid.row_parts = c.workers();
  for (size_t r = 0; r < params->parts.size(); ++r) stage.read(params->parts[r], c.op().inputs[r], Reads::kTile);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

/// The first stage of a sum over a group: shows this rank's part to the others.
struct ArriveParams {
  std::shared_ptr<RankGroup> group;  ///< keeps the exchange alive
  RankExchange* exchange;
  Dim rows;
  int64_t cols;
  Operand<const float> part;
  Operand<float> token;
};

void run_arrive(const ArriveParams& p, const Tile&, const StepContext& step, WorkerContext&) {
  p.exchange->arrive(p.part, p.rows.eval(step.sizes) * p.cols * int64_t{sizeof(float)});
}

/// The second stage: waits for the other ranks and adds all parts.
struct GroupSumParams {
  RankExchange* exchange;
  PartSum sum;
  Operand<const float> part, token;
  Operand<float> y;
};

void run_group_sum(const GroupSumParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  const std::span<const void* const> parts = p.exchange->parts();
  if (parts.empty()) return;  // the group has failed, and so will the step (runtime/rank_runner.h)
  p.sum.run(
      tile, std::ssize(parts), [&](int64_t r) { return static_cast<const float*>(parts[static_cast<size_t>(r)]); },
      p.y);
}

/// The last stage: waits until no other rank reads this rank's part any more. It reads the part, so that the memory is
/// not used for another value before.
struct LeaveParams {
  RankExchange* exchange;
  Operand<const float> part, y;
  Operand<float> token;
};

void run_leave(const LeaveParams& p, const Tile&, const StepContext&, WorkerContext&) { p.exchange->leave(); }

Status lower_group_sum(LowerContext& c, const AllReduceAttrs& attrs) {
  const ValueId part = c.op().inputs[0], y = c.op().outputs[0];
  auto arrive = std::make_shared<ArriveParams>();
  arrive->group = attrs.group;
  arrive->exchange = &attrs.group->exchange(attrs.exchange);
  arrive->rows = c.out().shape[0];
  arrive->cols = c.out().shape[1].constant();
  const ValueId arrived = c.add_temporary(c.op().name + ".arrived", {Dim(1), Dim(1)});
  LoweredStage first = LoweredStage::make<run_arrive>(TaskGrid::work_partitions(1, 1), arrive);
  first.name = c.op().name + ".arrive";
  first.read(arrive->part, part, Reads::kAll);
  if (attrs.has_after) first.read(c.op().inputs[1], Reads::kAll);
  first.write(arrive->token, arrived);
  c.add_stage(std::move(first));

  auto sum = std::make_shared<GroupSumParams>();
  sum->exchange = arrive->exchange;
  sum->sum = {c.kernels().add, arrive->cols};
  LoweredStage second = c.output_stage<run_group_sum>(sum);
  second.grid.row_parts = c.workers();
  second.read(sum->part, part, Reads::kTile);
  second.read(sum->token, arrived, Reads::kAll);
  second.write(sum->y, y);
  c.add_stage(std::move(second));

  auto leave = std::make_shared<LeaveParams>();
  leave->exchange = arrive->exchange;
  LoweredStage third = LoweredStage::make<run_leave>(TaskGrid::work_partitions(1, 1), leave);
  third.name = c.op().name + ".leave";
  third.read(leave->part, part, Reads::kAll);
  third.read(leave->y, y, Reads::kAll);
  third.write(leave->token, c.add_temporary(c.op().name + ".left", {Dim(1), Dim(1)}));
  c.add_stage(std::move(third));
  return {};
}

Status lower_all_reduce(LowerContext& c) {
  const auto& attrs = std::any_cast<const AllReduceAttrs&>(c.op().attrs);
  return attrs.group ? lower_group_sum(c, attrs) : lower_local_sum(c, attrs);
}

constexpr CpuLowering kAllReduceOps[] = {{&kAllReduce, lower_all_reduce}};

}  // namespace

extern const CpuLowerings kAllReduceLowerings = kAllReduceOps;

}  // namespace redline
