#include "graph/ops/joint_attention.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "backends/cpu/joint_attention_lowering.h"
#include "backends/cpu/prepared_output.h"
#include "kernels/cpu/attention/attention_args.h"

namespace redline {
namespace {

/// Query rows are split among tasks at multiples of this number.
constexpr int64_t kGrain = 32;

struct JointAttentionParams {
  JointAttentionAttrs a;
  Dim batch, tokens, keys;
  int row_parts;
  PackedKv packed;
  void (*attend)(const AttentionArgs&);
  std::vector<int32_t> pages;  ///< 0, 1, 2, ..
  int64_t block_rows;          ///< query rows per kernel call; the last call may have up to kGrain - 1 more
  int64_t col_group;           ///< columns that are stored together: whole heads
  bool prepared;
  PreparedOutput out;
  HeadStepKernels steps;  ///< kernels for the steps of the queries
  Operand<const float> q;
  Operand<const uint8_t> packed_kv;
  Operand<const int32_t> key_lengths;  ///< null if all keys are attended to
  Dim sequences;
  Operand<const int32_t> offsets;  ///< offsets of packed sequences, or null
  Operand<float> y;

  /// Number of floats in worker.buffer for the queries of one head after norm and rope.
  int64_t query_floats() const { return steps.any() ? (block_rows + kGrain) * a.head_dim : 0; }
};

/// Query rows [begin, end) of an item that has `keys` keys. They attend to the first `length` keys, or, if causal, to
/// the keys up to their own position.
struct JointBlock {
  const BatchItem& item;
  int64_t keys, begin, end, length;
  bool causal;
};

/// Returns the position of the first row that is passed to the kernel, which is causal:
/// 1. causal rows keep their own position;
/// 2. rows that attend to all keys are placed after the last key;
/// 3. with a window w, rows are moved by w, so that the kernel's window of the 2 w + 1 positions up to the moved row
///    lies around the row.
int64_t first_position(const JointAttentionParams& s, const JointBlock& b) {
  if (s.a.window > 0) return b.begin + s.a.window;
  return b.causal ? b.begin : b.length;
}

/// Computes one head of a block into `y`, rows `y_stride` apart.
void attend_head(const JointAttentionParams& s, const JointBlock& b, const float* q, int64_t q_stride,
                 const KvHeadView& head, float* y, int64_t y_stride, WorkerContext& worker) {
  const int64_t rows = b.end - b.begin, d = s.a.head_dim;
  if (b.length == 0) {
    for (int64_t r = 0; r < rows; ++r) std::memset(y + r * y_stride, 0, static_cast<size_t>(d) * sizeof(float));
    return;
  }
  s.attend({.q = q,
            .q_stride = q_stride,
            .y = y,
            .y_stride = y_stride,
            .rows = rows,
            .group = 1,
            .head_dim = d,
            .first_position = first_position(s, b),
            .window = s.a.window > 0 ? 2 * s.a.window + 1 : 0,
            .scale = s.a.scale,
            .pages = s.pages.data(),
            .cache = head,
            .kv_begin = 0,
            .kv_end = b.length,
            .partials = nullptr,
            .scratch = worker.scratch});
}

void attend_block(const JointAttentionParams& s, const Tile& tile, const StepContext& step, const JointBlock& b,
                  WorkerContext& worker) {
  const int64_t d = s.a.head_dim, stride = s.a.num_heads * d, row = b.item.first_row + b.begin;
  const float* q = s.q + row * stride;
  float* y = s.y + row * stride;
  auto* queries = static_cast<float*>(worker.buffer);
  float* stored = queries + s.query_floats();
  for (int64_t group = tile.col_begin; group < tile.col_end; group += s.col_group) {
    const int64_t end = std::min(group + s.col_group, tile.col_end);
    for (int64_t col = group; col < end; col += d) {
      const KvHeadView head = s.packed.head(s.packed_kv, b.item.pages_before, b.keys, col / d);
      const float* of_head = q + col;
      if (s.steps.any()) {
        for (int64_t r = 0; r < b.end - b.begin; ++r)
          s.steps.apply(q + r * stride + col, 1, d, row + r, queries + r * d);
        of_head = queries;
      }
      float* to = s.prepared ? stored + col - group : y + col;
      attend_head(s, b, of_head, s.steps.any() ? d : stride, head, to, s.prepared ? s.col_group : stride, worker);
    }
    if (s.prepared)
      s.out.write(stored, s.col_group, s.out.rows.eval(step.sizes),
                  {row, row + b.end - b.begin, group, end, tile.index}, s.y);
  }
}

void run_joint_attention(const JointAttentionParams& s, const Tile& tile, const StepContext& step,
                         WorkerContext& worker) {
  const int64_t tokens = s.tokens.eval(step.sizes);
  const auto attend = [&](const BatchItem& item, RowRange wanted) {
    const int64_t keys = s.offsets ? item.rows : s.keys.eval(step.sizes);
    const int64_t length = std::clamp<int64_t>(s.key_lengths ? s.key_lengths[item.index] : keys, 0, keys);
    const int64_t causal_rows = s.a.causal ? std::min(length, item.rows) : 0;
    for (bool causal : {true, false}) {
      const RowRange span = causal ? RowRange{0, causal_rows} : RowRange{causal_rows, item.rows};
      const RowRange rows = round_range(span, wanted, kGrain);
      for (int64_t begin = rows.begin; begin < rows.end;) {
        const int64_t left = rows.end - begin, count = left < s.block_rows + kGrain ? left : s.block_rows;
        attend_block(s, tile, step, {item, keys, begin, begin + count, length, causal}, worker);
        begin += count;
      }
    }
  };
  const RowRange rows = row_range(tile, s.row_parts, s.batch.eval(step.sizes) * tokens);
  if (s.offsets) for_sequence_ranges(rows, s.offsets, s.sequences.eval(step.sizes), attend);
  else for_item_ranges(rows, tokens, s.keys.eval(step.sizes), attend);
}

/// Returns a grid with up to four tasks per worker, so that idle workers can steal, if it cuts rows into at most two
/// parts, else one with up to two tasks per worker: tasks that share columns each read all keys again.
TaskGrid attention_grid(int64_t cols, int64_t col_group, int workers) {
  const TaskGrid fine = head_grid(cols, col_group, workers * 4);
  return fine.row_parts <= 2 ? fine : head_grid(cols, col_group, workers * 2);
}

Status lower_joint_attention(LowerContext& c) {
  // A block of more rows reads the keys fewer times; kMaxFloats floats of rows fit in the L2 cache beside the keys.
  // Output in kI8Tiled is collected for kI8Chunk columns and exceeds L2: reading the keys more often would cost more.
  constexpr int64_t kMaxRows = 1024, kMaxFloats = 1 << 18;
  const auto& op = std::any_cast<const JointAttentionOpAttrs&>(c.op().attrs);
  const auto& in = c.op().inputs;
  const KvFormat format = PackedKv::format_of(c);
  // If the CPU has fast bfloat16 dot products, dot products over all positions at once are faster than chunk by chunk.
  const bool has_dots = format == KvFormat::kBF16 && c.kernels().has_fast_bf16_dot;
  auto* attend = (has_dots ? c.kernels().attention_tiles : c.kernels().attention)[static_cast<size_t>(format)];
  if (!attend) return unsupported("no attention kernel for this format of keys and values");
  const Dim keys = op.has_offsets ? op.tokens : c.in(1).shape[1] + Dim(-kSpareKeys);
  const int64_t pages = kv_pages_for(keys.eval(c.options().bounds));
  const int64_t cols = op.a.num_heads * op.a.head_dim;
  auto params = std::make_shared<JointAttentionParams>(
      JointAttentionParams{.a = op.a,
                           .batch = op.batch,
                           .tokens = op.tokens,
                           .keys = keys,
                           .packed = PackedKv(format, op.a.num_heads, op.a.head_dim),
                           .attend = attend,
                           .pages = consecutive(pages),
                           .col_group = op.a.head_dim,
                           .prepared = !c.out().layouts.only_f32()});
  if (params->prepared) {
    REDLINE_ASSIGN(params->out, PreparedOutput::make(c));
    params->col_group = std::min(std::lcm(op.a.head_dim, c.out().layouts.grain()), cols);
  }
  const int64_t max_floats = c.out().layouts.grain() == kI8Chunk ? 4 * kMaxFloats : kMaxFloats;
  params->block_rows = std::clamp(max_floats / params->col_group / kGrain * kGrain, kGrain, kMaxRows);

  auto stage = LoweredStage::make<run_joint_attention>(attention_grid(cols, params->col_group, c.workers()), params);
  params->row_parts = stage.grid.row_parts;
  stage.read(params->q, in[0], Reads::kTile);
  stage.read(params->packed_kv, in[1], Reads::kAll);
  if (op.has_lengths) stage.read(params->key_lengths, in[2], Reads::kAll);
  if (op.has_offsets) {
    params->sequences = c.in(2).shape[0] + Dim(-1);
    stage.read(params->offsets, in[2], Reads::kAll);
  }
  REDLINE_TRY(params->steps.lower(c, op.steps, op.has_lengths || op.has_offsets ? 3 : 2, stage));
  stage.write(params->y, c.op().outputs[0]);
  if (!params->prepared) stage.in_place_of = in[0];
  const int64_t stored = params->prepared ? (params->block_rows + kGrain) * params->col_group : 0;
  stage.buffer_bytes = (params->query_floats() + stored) * static_cast<int64_t>(sizeof(float));
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kJointAttentionOps[] = {{&kJointAttention, lower_joint_attention}};

}  // namespace

Result<size_t> HeadStepKernels::lower(LowerContext& c, const HeadSteps& steps, size_t input, LoweredStage& stage) {
  if (steps.has_norm) {
    REDLINE_ASSIGN(weight, c.dense_weight(input++));
    rms_norm = c.kernels().rms_norm;
    eps = steps.eps;
  }
  if (steps.has_rope) {
    rope = c.kernels().rope;
    rotary_dim = c.in(input).shape[1].constant();
    stage.read(table, c.op().inputs[input++], Reads::kAll);
  }
  return input;
}

extern const CpuLowerings kJointAttentionLowerings = kJointAttentionOps;

}  // namespace redline
