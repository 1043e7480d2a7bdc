#include "graph/ops/gated_scan.h"

#include <cmath>

#include "backends/cpu/recurrent_place.h"
#include "kernels/cpu/recurrence.h"

namespace redline {
namespace {

static_assert(kScanChunk == kScanChunkTokens && kScanChunk == kKvPageTokens);

struct GatedScanParams {
  void (*kernel)(const GatedScanArgs&);
  GatedScanAttrs a;
  RecurrentPlace state;
  const float *decay, *bias, *skip = nullptr;
  Operand<const float> x, step, beta;  // beta: null without is_delta
  Operand<float> y;

  /// Returns the number of adjacent heads from `head` on, before `end`, that belong to one group.
  int64_t run_of(int64_t head, int64_t end) const {
    if (a.groups_alternate && a.num_groups > 1) return 1;
    const int64_t size = a.num_heads / a.num_groups;
    return std::min(end - head, size - head % size);
  }
  /// Returns true if this head writes the keys of its group: exactly one head does.
  bool writes_keys(int64_t head) const {
    return a.groups_alternate ? head < a.num_groups : head % (a.num_heads / a.num_groups) == 0;
  }
};

/// The parts of a layer's state.
template <class T>
struct ScanState {
  T *state, *keys, *values, *decays;

  ScanState(const GatedScanAttrs& a, T* data)
      : state(data), keys(state + a.num_heads * a.key_dim * a.value_dim),
        values(keys + a.num_groups * a.key_dim * kScanChunk), decays(values + a.num_heads * kScanChunk * a.value_dim) {}
};

float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

/// Computes log decay and scale, [count][kScanChunk] each, of heads [head, head + count) for `rows` rows from `row` on.
void fill_gates(const GatedScanParams& p, int64_t row, int64_t rows, int64_t head, int64_t count, float* log_decay,
                float* scale) {
  const GatedScanAttrs& a = p.a;
  for (int64_t h = 0; h < count; ++h)
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = (row + r) * a.num_heads + head + h;
      const float step = std::min(std::max(softplus(p.step[at] + p.bias[head + h]), a.step_min), a.step_max);
      log_decay[h * kScanChunk + r] = p.decay[head + h] * step;
      scale[h * kScanChunk + r] = a.is_delta ? 1 / (1 + std::exp(-p.beta[at])) : step;
    }
}

/// Computes heads [head, head + count), which belong to one group, for rows within one chunk. `position`: position of
/// the first row in its sequence.
void run_rows(const GatedScanParams& p, int64_t row, int64_t rows, int64_t position, int64_t head, int64_t count,
              const ScanState<const float>& before, const ScanState<float>& after, WorkerContext& worker) {
  const GatedScanAttrs& a = p.a;
  const int64_t group = a.group_of(head), n = a.key_dim, size = a.value_dim;
  auto* log_decay = static_cast<float*>(worker.buffer);
  float* scale = log_decay + count * kScanChunk;
  fill_gates(p, row, rows, head, count, log_decay, scale);
  const int64_t keys = a.num_groups * n, values = a.num_heads * size;
  const float* x = p.x + row * a.columns();
  const float* q = x + (a.is_delta ? 0 : values + keys);
  const float* k = x + (a.is_delta ? keys : values);
  const float* v = x + (a.is_delta ? 2 * keys : 0);
  p.kernel({.kind = a.is_delta ? GatedScanArgs::kDelta : GatedScanArgs::kSelective,
            .q = q + group * n,
            .k = k + group * n,
            .v = v + head * size,
            .stride = a.columns(),
            .key_dim = n,
            .value_dim = size,
            .heads = count,
            .filled = position % kScanChunk,
            .rows = rows,
            .query_scale = a.is_delta ? 1 / std::sqrt(static_cast<float>(n)) : 1.0f,
            .log_decay = log_decay,
            .scale = scale,
            .skip = p.skip ? p.skip + head : nullptr,
            .state_before = before.state + head * n * size,
            .state_after = after.state + head * n * size,
            .keys_before = before.keys + group * n * kScanChunk,
            .keys_after = p.writes_keys(head) ? after.keys + group * n * kScanChunk : nullptr,
            .values_before = before.values + head * kScanChunk * size,
            .values_after = after.values + head * kScanChunk * size,
            .decays_before = before.decays + head * kScanChunk,
            .decays_after = after.decays + head * kScanChunk,
            .y = p.y + row * values + head * size,
            .y_stride = values,
            .scratch = worker.scratch});
}

// A tile covers some heads of all rows, or of a chunk of them, continuing from the previous chunk's state.
void run_gated_scan(const GatedScanParams& p, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const int64_t head_end = tile.col_end / p.a.value_dim;
  for (size_t s = 0; s < step.sequences.size(); ++s) {
    const SequenceRows& rows = step.sequences[s];
    const int64_t row_begin = std::max<int64_t>(0, tile.row_begin - rows.row_begin);
    const int64_t row_end = std::min<int64_t>(rows.rows, tile.row_end - rows.row_begin);
    const ScanState<float> after(p.a, p.state.after(step, s));
    // Behind the first rows, what they left.
    const ScanState<const float> before(p.a, p.state.before(step, s)), left(p.a, p.state.after(step, s));
    for (int64_t head = tile.col_begin / p.a.value_dim, count = 0; head < head_end; head += count) {
      count = p.run_of(head, head_end);
      for (int64_t done = row_begin, n = 0; done < row_end; done += n) {
        const int64_t position = rows.first_position + done;
        n = std::min(row_end - done, kScanChunk - position % kScanChunk);
        run_rows(p, rows.row_begin + done, n, position, head, count, done == 0 ? before : left, after, worker);
      }
    }
  }
}

Status lower_gated_scan(LowerContext& c) {
  const auto& in = c.op().inputs;
  auto params = std::make_shared<GatedScanParams>();
  params->kernel = c.kernels().gated_scan;
  params->a = std::any_cast<const GatedScanAttrs&>(c.op().attrs);
  const GatedScanAttrs& a = params->a;
  params->state = RecurrentPlace::of(c, 5);
  REDLINE_ASSIGN(params->decay, c.dense_weight(2));
  REDLINE_ASSIGN(params->bias, c.dense_weight(3));
  LoweredStage stage = c.output_stage<run_gated_scan>(params);
  stage.grid.col_begin = LowerContext::cut_columns(stage.grid.cols, a.value_dim, c.workers());
  stage.buffer_bytes = 2 * a.num_heads * kScanChunk * int64_t{sizeof(float)};
  // Heads that share keys exchange those of an incomplete chunk.
  stage.row_cuts = RowCuts::kAtPositions;
  stage.rows_in_order = true;
  stage.read(params->x, in[0], Reads::kRows);
  stage.read(params->step, in[1], Reads::kRows);
  if (a.is_delta) {
    stage.read(params->beta, in[4], Reads::kRows);
  } else {
    REDLINE_ASSIGN(params->skip, c.dense_weight(4));
  }
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kGatedScanOps[] = {{&kGatedScan, lower_gated_scan}};

}  // namespace

extern const CpuLowerings kGatedScanLowerings = kGatedScanOps;

}  // namespace redline
