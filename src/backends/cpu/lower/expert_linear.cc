#include "graph/ops/expert_linear.h"

#include <cmath>

#include "backends/cpu/grouped_product.h"
#include "kernels/cpu/activation.h"

namespace redline {
namespace {

struct ExpertLinearParams {
  ExpertLinearAttrs a;
  GroupMatrices kinds[2];  // gate and up, or the only one
  void (*activate)(const ActivationArgs&);
  bool shares_x;  // gate and up read x in the same layouts
  int64_t max_tiles;
  int tasks;
  WorkQueue queue;
  Operand<const float> x;
  Operand<const int32_t> offsets, order;
  Operand<float> y;
};

/// Finds the expert and the column tile of a queue number. Numbers must not decrease.
class Items {
 public:
  explicit Items(const ExpertLinearParams& p) : p_(p), pairs_(p.offsets[p.a.num_experts]), tiles_(tiles_of(0)) {}
  bool find(int64_t number) {
    while (number >= first_ + tiles_) {
      first_ += tiles_;
      if (++expert_ >= p_.a.num_experts) return false;
      tiles_ = tiles_of(expert_);
    }
    tile_ = number - first_;
    return true;
  }
  int64_t expert() const { return expert_; }
  ColumnRange columns() const { return column_tile(p_.kinds[0].features, tile_, tiles_); }

 private:
  /// Returns the number of column tiles of an expert. Tiles have about equal work, and there are a few for each worker,
  /// so that the workers finish together.
  int64_t tiles_of(int64_t expert) const {
    constexpr int64_t kPerWorker = 4;
    const int64_t rows = p_.offsets[expert + 1] - p_.offsets[expert];
    if (rows == 0) return 0;
    return std::clamp<int64_t>((rows * kPerWorker * p_.tasks + pairs_ - 1) / pairs_, 1, p_.max_tiles);
  }
  const ExpertLinearParams& p_;
  int64_t pairs_, expert_ = 0, first_ = 0, tiles_, tile_ = 0;
};

void clamp_gate_and_up(float limit, float* gate, int64_t gate_stride, float* up, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < cols; ++i) {
      float &g = gate[r * gate_stride + i], &u = up[r * cols + i];
      g = g > limit ? limit : g;  // NaN stays
      u = (u > limit ? limit : u < -limit ? -limit : u) + 1;
    }
}

/// Computes columns `cols` for the rows of one expert, which are pairs [begin, begin + count) of the order.
void run_gated(const ExpertLinearParams& p, size_t expert, int64_t begin, int64_t count, const ColumnRange& cols,
               WorkerContext& worker) {
  const GroupMatrices &gate = p.kinds[0], &up = p.kinds[1];
  const int64_t n = gate.features, k = gate.in_features;
  auto* buffer = static_cast<uint8_t*>(worker.buffer);
  for (int64_t row = 0; row < count; row += kGroupBlockRows) {
    const int64_t rows = std::min(kGroupBlockRows, count - row);
    const auto row_of = [&](int64_t r) { return p.x + p.order[begin + row + r] / p.a.experts_per_token * k; };
    const auto x = gate.prepared(count, rows, 0, row_of, buffer);
    uint8_t* rest = buffer + gate.prepared_bytes(rows);
    const auto x_of_up = p.shares_x ? x : up.prepared(count, rows, 0, row_of, rest);
    auto* part = reinterpret_cast<float*>(p.shares_x ? rest : rest + up.prepared_bytes(rows));
    float* y = p.y + (begin + row) * n;
    const int64_t block = block_cols(rows, 1);
    for (int64_t col = cols.begin; col < cols.end; col += block) {
      const int64_t end = std::min(col + block, cols.end), width = end - col;
      gate.multiply(expert, count, x, rows, col, end, y, n, worker.scratch);
      up.multiply(expert, count, x_of_up, rows, col, end, part - col, width, worker.scratch);
      if (p.a.limit > 0) clamp_gate_and_up(p.a.limit, y + col, n, part, rows, width);
      p.activate({.x = y + col,
                  .x_stride = n,
                  .up = part,
                  .up_stride = width,
                  .y = y + col,
                  .y_stride = n,
                  .rows = rows,
                  .cols = width,
                  .kind = p.a.activation});
    }
  }
}

void run_plain(const ExpertLinearParams& p, size_t expert, int64_t begin, int64_t count, const ColumnRange& cols,
               WorkerContext& worker) {
  const GroupMatrices& m = p.kinds[0];
  const int64_t n = m.features, k = m.in_features;
  for (int64_t row = 0; row < count; row += kGroupBlockRows) {
    const int64_t rows = std::min(kGroupBlockRows, count - row);
    const auto row_of = [&](int64_t r) { return p.x + (begin + row + r) * k; };
    const auto x = m.prepared(count, rows, k, row_of, worker.buffer);
    const auto y_of = [&](int64_t r) { return p.y + p.order[begin + row + r] * n; };
    if (rows == 1) {
      m.multiply(expert, count, x, rows, cols.begin, cols.end, y_of(0), n, worker.scratch);
      continue;
    }
    auto* part = reinterpret_cast<float*>(static_cast<uint8_t*>(worker.buffer) + m.prepared_bytes(rows));
    const int64_t block = block_cols(rows, 1);
    for (int64_t col = cols.begin; col < cols.end; col += block) {
      const int64_t end = std::min(col + block, cols.end), width = end - col;
      m.multiply(expert, count, x, rows, col, end, part - col, width, worker.scratch);
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(y_of(r) + col, part + r * width, static_cast<size_t>(width) * sizeof(float));
    }
  }
}

template <int kKinds>
void run_expert_linear(const ExpertLinearParams& p, const Tile&, const StepContext&, WorkerContext& worker) {
  Items items(p);
  while (items.find(p.queue.next())) {
    const int64_t begin = p.offsets[items.expert()], count = p.offsets[items.expert() + 1] - begin;
    const auto expert = static_cast<size_t>(items.expert());
    if constexpr (kKinds == 2) run_gated(p, expert, begin, count, items.columns(), worker);
    else run_plain(p, expert, begin, count, items.columns(), worker);
  }
  p.queue.leave(p.tasks);
}

template <int kKinds>
Status lower_expert_linear(LowerContext& c) {
  const auto& in = c.op().inputs;
  auto params = std::make_shared<ExpertLinearParams>();
  params->a = std::any_cast<const ExpertLinearAttrs&>(c.op().attrs);
  const auto experts = static_cast<size_t>(params->a.num_experts);
  constexpr size_t kFirst = 3;
  int64_t col_bytes = 0;
  // A token has an expert once: no group has more rows than there are tokens.
  const int64_t pairs = c.in(2).shape[0].eval(c.options().bounds);
  const int64_t rows = std::min(kGroupBlockRows, pairs / params->a.experts_per_token);
  int64_t buffer_bytes = block_bytes(rows, 1);
  for (size_t kind = 0; kind < kKinds; ++kind) {
    REDLINE_ASSIGN(params->kinds[kind], GroupMatrices::make(c, kFirst + kind * experts, experts));
    if (params->a.has_bias) {
      REDLINE_ASSIGN(params->kinds[kind].bias, c.dense_weight(kFirst + kKinds * experts + kind));
    }
    col_bytes += params->kinds[kind].col_bytes;
    buffer_bytes += params->kinds[kind].prepared_bytes(rows);
  }
  params->activate = c.kernels().activation;
  params->shares_x = kKinds == 1 || params->kinds[0].kernels.layouts == params->kinds[1].kernels.layouts;
  params->max_tiles = max_column_tiles(params->kinds[0].features, col_bytes);
  params->tasks = c.workers();
  auto stage = LoweredStage::make<run_expert_linear<kKinds>>(
      TaskGrid::work_partitions(c.workers(), params->kinds[0].features), params);
  stage.buffer_bytes = buffer_bytes;
  stage.read(params->x, in[0], Reads::kAll);
  stage.read(params->offsets, in[1], Reads::kAll);
  stage.read(params->order, in[2], Reads::kAll);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kExpertLinearOps[] = {
    {&kExpertGatedLinear, lower_expert_linear<2>},
    {&kExpertLinear, lower_expert_linear<1>},
};

}  // namespace

extern const CpuLowerings kExpertLinearLowerings = kExpertLinearOps;

}  // namespace redline
