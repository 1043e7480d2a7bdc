// A wavefront over layers and chunks of tokens: in wave w, layer l computes chunk w - l, once layer l - 1 has computed
// it in wave w - 1. Waves are stages of their own; a task is one layer, one chunk and a part of the sequences.
//
// Layers overwrite each other's rows of y: the inputs of a chunk are read before its results are written, and what a
// layer needs of its own earlier tokens is in the state.
#include "graph/ops/lstm.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/linear_lowering.h"
#include "backends/cpu/recurrent_place.h"
#include "kernels/cpu/recurrence.h"

namespace redline {
namespace {

/// Number of chunks of a step. With L layers, kWaveChunks / (kWaveChunks + L - 1) of the tasks have work on average.
constexpr int64_t kWaveChunks = 16;
/// Number of rows that are multiplied at a time; their gates stay in the L2 cache.
constexpr int64_t kLstmRows = 128;

struct LstmMatrix {
  LinearKernels kernels;
  const void* weight = nullptr;
  const float* bias = nullptr;
  int64_t columns = 0;
};

struct LstmLayerParams {
  LstmMatrix ih, hh;
  int64_t dilation = 1, offset = 0;  ///< dilation of the layer, and offset of its part of the state
};

struct LstmNetwork {
  std::vector<LstmLayerParams> layers;
  int64_t hidden = 0, columns = 0, parts = 1;  ///< columns: maximum number of columns that a product reads
  RecurrentPlace state;
  void (*cell)(const LstmCellArgs&) = nullptr;

  int64_t buffer_floats() const { return kLstmRows * (columns + 4 * hidden); }
};

struct LstmWave {
  std::shared_ptr<const LstmNetwork> network;
  int64_t wave = 0, first_layer = 0;
  Operand<const float> x;  // null where the first layer is done
  Operand<float> y;
};

/// Computes one layer for some tokens of some sequences.
class LstmTask {
 public:
  LstmTask(const LstmWave& p, int64_t layer, const StepContext& step, WorkerContext& worker)
      : net_(*p.network), layer_(net_.layers[static_cast<size_t>(layer)]), step_(step), worker_(worker),
        input_(layer == 0 ? static_cast<const float*>(p.x) : static_cast<const float*>(p.y)), y_(p.y),
        rows_(static_cast<float*>(worker.buffer)), gates_(rows_ + kLstmRows * net_.columns) {}

  /// Copies the layer's state of sequence s to the page that the step writes.
  void copy_state(size_t s) const {
    const float* from = net_.state.before(step_, s) + layer_.offset;
    float* to = net_.state.after(step_, s) + layer_.offset;
    if (from != to) std::memcpy(to, from, static_cast<size_t>(2 * layer_.dilation * net_.hidden) * sizeof(float));
  }
  /// Computes tokens [begin, end) of sequences [first, last), at most kLstmRows sequences.
  void run(size_t first, size_t last, int64_t begin, int64_t end) {
    const int64_t tokens = std::max<int64_t>(1, kLstmRows / static_cast<int64_t>(last - first));
    for (int64_t t = begin; t < end; t += tokens) {
      count_ = 0;
      for (int64_t token = t; token < std::min(t + tokens, end); ++token)
        for (size_t s = first; s < last; ++s)
          if (token < step_.sequences[s].rows) places_[count_++] = {s, token};
      run_rows();
    }
  }

 private:
  struct Place {
    size_t sequence;
    int64_t token;  ///< index of the token among the sequence's tokens of this step
  };

  int64_t row_of(const Place& at) const { return step_.sequences[at.sequence].row_begin + at.token; }
  float* state_of(const Place& at) const {
    const int64_t position = step_.sequences[at.sequence].first_position + at.token;
    return net_.state.after(step_, at.sequence) + layer_.offset + position % layer_.dilation * net_.hidden;
  }
  void multiply(const LstmMatrix& matrix, int64_t rows, const float* residual, float* y) const {
    matrix.kernels.for_rows(rows)({.x = rows_,
                                   .x_stride = matrix.columns,
                                   .rows = rows,
                                   .weight = matrix.weight,
                                   .out_features = 4 * net_.hidden,
                                   .in_features = matrix.columns,
                                   .n_begin = 0,
                                   .n_end = 4 * net_.hidden,
                                   .bias = matrix.bias,
                                   .residual = residual,
                                   .y = y,
                                   .y_stride = 4 * net_.hidden,
                                   .scratch = worker_.scratch});
  }
  /// Computes the first `count_` places, in order of their tokens.
  void run_rows() {
    if (count_ == 0) return;
    const int64_t hidden = net_.hidden;
    for (int64_t r = 0; r < count_; ++r)
      std::copy_n(input_ + row_of(places_[r]) * layer_.ih.columns, layer_.ih.columns, rows_ + r * layer_.ih.columns);
    multiply(layer_.ih, count_, nullptr, gates_);
    // Tokens that are less than the dilation apart do not need each other.
    for (int64_t r = 0, next = 0; r < count_; r = next) {
      while (next < count_ && places_[next].token < places_[r].token + layer_.dilation) ++next;
      for (int64_t i = r; i < next; ++i) std::copy_n(state_of(places_[i]), hidden, rows_ + (i - r) * hidden);
      float* gates = gates_ + r * 4 * hidden;
      multiply(layer_.hh, next - r, gates, gates);
      for (int64_t i = r; i < next; ++i) {
        float* h = state_of(places_[i]);
        net_.cell({.gates = gates_ + i * 4 * hidden,
                   .h = h,
                   .c = h + layer_.dilation * hidden,
                   .y = y_ + row_of(places_[i]) * hidden,
                   .hidden = hidden});
      }
    }
  }

  const LstmNetwork& net_;
  const LstmLayerParams& layer_;
  const StepContext& step_;
  WorkerContext& worker_;
  const float* input_;
  float *y_, *rows_, *gates_;
  int64_t count_ = 0;
  Place places_[kLstmRows];
};

void run_lstm(const LstmWave& p, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const LstmNetwork& net = *p.network;
  const int64_t layer = p.first_layer + tile.index / net.parts, part = tile.index % net.parts, chunk = p.wave - layer;
  const int64_t sequences = std::ssize(step.sequences);
  const auto first = static_cast<size_t>(sequences * part / net.parts),
             last = static_cast<size_t>(sequences * (part + 1) / net.parts);
  int64_t longest = 0;
  for (const SequenceRows& rows : step.sequences) longest = std::max<int64_t>(longest, rows.rows);
  LstmTask task(p, layer, step, worker);
  if (chunk == 0)
    for (size_t s = first; s < last; ++s) task.copy_state(s);
  for (size_t s = first; s < last; s += kLstmRows)
    task.run(s, std::min<size_t>(s + kLstmRows, last), longest * chunk / kWaveChunks,
             longest * (chunk + 1) / kWaveChunks);
}

Result<LstmMatrix> lower_matrix(LowerContext& c, size_t i, bool has_bias) {
  LstmMatrix matrix;
  const ValueInfo& weight = c.in(i);
  matrix.kernels = choose_linear(c.kernels(), weight.dtype, /*exact_f32=*/true, c.options().batch_invariance);
  if (!matrix.kernels.run[0])
    return unsupported("{} has type {}, which the linear kernels do not read", weight.name,
                       dtype_info(weight.dtype).name);
  REDLINE_ASSIGN(matrix.weight, c.packed_weight(i));
  if (has_bias) {
    REDLINE_ASSIGN(matrix.bias, c.dense_weight(i + 2));
  }
  matrix.columns = weight.shape[1].constant();
  return matrix;
}

Status lower_lstm(LowerContext& c) {
  const auto& a = std::any_cast<const LstmAttrs&>(c.op().attrs);
  auto network = std::make_shared<LstmNetwork>();
  network->hidden = a.hidden_size;
  network->parts = c.workers();
  network->state = RecurrentPlace::of(c, 1);
  network->cell = c.kernels().lstm_cell;
  for (int64_t l = 0; l < a.num_layers(); ++l) {
    const auto at = static_cast<size_t>(2 + l * (a.has_bias ? 4 : 2));
    LstmLayerParams layer;
    REDLINE_ASSIGN(layer.ih, lower_matrix(c, at, a.has_bias));
    REDLINE_ASSIGN(layer.hh, lower_matrix(c, at + 1, a.has_bias));
    layer.dilation = a.dilation[static_cast<size_t>(l)];
    layer.offset = a.state_offset(l);
    network->columns = std::max({network->columns, layer.ih.columns, layer.hh.columns});
    network->layers.push_back(layer);
  }
  const ValueId x = c.op().inputs[0], y = c.op().outputs[0];
  const int64_t waves = kWaveChunks + a.num_layers() - 1;
  ValueId before = -1;
  for (int64_t wave = 0; wave < waves; ++wave) {
    auto params = std::make_shared<LstmWave>();
    params->network = network;
    params->wave = wave;
    params->first_layer = std::max<int64_t>(0, wave - kWaveChunks + 1);
    const int64_t layers = std::min(wave, a.num_layers() - 1) - params->first_layer + 1;
    LoweredStage stage = LoweredStage::make<run_lstm>(
        TaskGrid::work_partitions(static_cast<int>(layers * network->parts), a.hidden_size), params);
    stage.name = fmt::format("{}.wave.{}", c.op().name, wave);
    stage.buffer_bytes = network->buffer_floats() * int64_t{sizeof(float)};
    if (params->first_layer == 0) stage.read(params->x, x, Reads::kAll);
    // A stage is known as the producer of a value; a value of one element stands for the rows of y that a wave writes.
    if (before >= 0) stage.read(before, Reads::kAll);
    before = c.add_temporary(stage.name, {Dim(1), Dim(1)});
    stage.write(before);
    if (wave == 0 || wave == waves - 1) stage.write(params->y, y);
    else stage.operands.push_back({&params->y, y});
    c.add_stage(std::move(stage));
  }
  return {};
}

constexpr CpuLowering kLstmOps[] = {{&kLstm, lower_lstm}};

}  // namespace

extern const CpuLowerings kLstmLowerings = kLstmOps;

}  // namespace redline
