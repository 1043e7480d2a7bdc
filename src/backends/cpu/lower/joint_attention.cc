#include "graph/ops/joint_attention.h"

#include <algorithm>
#include <numeric>

#include "backends/cpu/lowering.h"
#include "backends/cpu/prepared_output.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/rope.h"

namespace redline {
namespace {

/// Pages of one (item, head): consecutive; each holds its keys, then its values.
struct PackedKeys {
  int64_t element_bytes, num_heads, page_elements;

  PackedKeys(KvFormat format, int64_t heads, int64_t head_dim)
      : element_bytes(format == KvFormat::kF32 ? 4 : 2), num_heads(heads),
        page_elements(kKvPageTokens * kv_head_width(head_dim)) {}
  KvHeadView head(void* packed, int64_t item, int64_t head, int64_t keys) const {
    const int64_t pages = (keys + kKvPageTokens - 1) / kKvPageTokens;
    auto* k = static_cast<uint8_t*>(packed) + (item * num_heads + head) * pages * 2 * page_elements * element_bytes;
    return {k, k + page_elements * element_bytes, 2 * page_elements};
  }
};

/// Tiles of a stage: about as many as workers, split by columns first, because different heads share no keys. There are
/// more tasks than workers, so that idle workers can steal; but if columns do not divide evenly there are fewer,
/// because tasks that share columns each read all keys again.
struct Cut {
  int cols, rows;
  static Cut of_tasks(int64_t column_groups, int workers) {
    const Cut fine(column_groups, workers * 4);
    return fine.rows <= 2 ? fine : Cut(column_groups, workers * 2);
  }
  Cut(int64_t column_groups, int workers)
      : cols(static_cast<int>(std::gcd(column_groups, static_cast<int64_t>(workers)))), rows(workers / cols) {}
};

/// The stage's rows are its tiles, so that the planner does not equate a tile with an equal fraction of the rows: cut()
/// rounds the ranges.
struct RowRange {
  int64_t begin, end;
};

RowRange rows_of_tile(const CpuStage& stage, const Tile& tile, int64_t rows) {
  return {rows * tile.row_begin / stage.plan->row_tiles, rows * tile.row_end / stage.plan->row_tiles};
}

/// The part of `span` for the rows [begin, end) of an item: cut at multiples of `grain` from the span's begin; the last
/// part is never shorter than a grain unless the span is. Kernel choice must not depend on the number of workers.
RowRange share(RowRange span, RowRange wanted, int64_t grain) {
  const int64_t last = std::max<int64_t>(0, (span.end - span.begin) / grain - 1) * grain;
  const auto cut = [&](int64_t at) {
    if (at >= span.end) return span.end;
    return span.begin + std::min(last, std::max<int64_t>(0, at - span.begin) / grain * grain);
  };
  return {cut(wanted.begin), cut(wanted.end)};
}

/// HeadSteps with their kernels; the norm's weight and the table are consecutive operands.
struct StepKernels {
  void (*rms_norm)(const RmsNormArgs&) = nullptr;  ///< nullptr: no norm
  void (*rope)(const RopeArgs&) = nullptr;
  float eps = 0;
  int64_t rotary_dim = 0;

  bool any() const { return rms_norm != nullptr || rope != nullptr; }
  /// Applies the steps to `heads` heads of row `row` of all rows, from x to y.
  void apply(const float* x, int64_t heads, int64_t head_dim, void* const* operands, int64_t row, float* y) const {
    if (rms_norm) {
      rms_norm({x, static_cast<const float*>(operands[0]), y, heads, head_dim, eps});
      x = y;
    }
    if (!rope) return;
    const float* table = static_cast<const float*>(operands[1]) + row * rotary_dim;
    rope({x, y, table, table + rotary_dim / 2, 1, heads, head_dim, rotary_dim});
  }
};

/// Turns the inputs of the steps, starting at `at`, into operands; `at` is advanced past them.
Result<StepKernels> lower_steps(LowerContext& c, const HeadSteps& steps, size_t& at, LoweredStage& stage,
                                std::vector<LowerContext::Operand>& operands) {
  StepKernels k;
  void* weight = nullptr;
  if (steps.has_norm) {
    REDLINE_ASSIGN(weight, c.dense_weight(at++));
    k.rms_norm = c.kernels().rms_norm;
    k.eps = steps.eps;
  }
  operands.push_back(c.at(weight));
  if (!steps.has_rope) {
    operands.push_back(c.at(nullptr));
    return k;
  }
  k.rope = c.kernels().rope;
  k.rotary_dim = c.in(at).shape[1].constant();
  const ValueId table = c.op().inputs[at++];
  stage.reads.push_back({table, Reads::kAll});
  operands.push_back(c.at(table));
  return k;
}

struct KeysStage {
  PackKvAttrs a;
  std::vector<StepKernels> steps;
  PackedKeys packed;
  void (*append)(const KvAppendArgs&);
  std::vector<int32_t> slots;  ///< 0, 1, 2, ..
};

// operands: packed, k and v of each segment, norm weight and table of each. A tile covers some heads of some keys.
void run_keys(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& s = stage.attrs_as<KeysStage>();
  const int64_t keys = s.a.keys.eval(step.sizes), batch = s.a.batch.eval(step.sizes);
  const int64_t stride = s.a.num_heads * s.a.head_dim, width = tile.col_end - tile.col_begin;
  const size_t num_segments = s.a.tokens.size();
  auto* page = static_cast<float*>(worker.buffer);  // keys of one page after norm and rope
  const RowRange all = rows_of_tile(stage, tile, batch * keys);
  for (int64_t item = keys > 0 ? all.begin / keys : 0; item * keys < all.end; ++item) {
    const RowRange mine = share({0, keys}, {all.begin - item * keys, all.end - item * keys}, kKvPageTokens);
    int64_t first = 0;
    for (size_t i = 0; i < num_segments; ++i) {
      const int64_t tokens = s.a.tokens[i].eval(step.sizes);
      const int64_t begin = std::max(mine.begin, first), end = std::min(mine.end, first + tokens);
      // Page by page over all heads, so that input rows are read sequentially.
      for (int64_t at = begin, next = 0; at < end; at = next) {
        next = std::min(end, (at / kKvPageTokens + 1) * kKvPageTokens);
        const int64_t row = item * tokens + at - first;
        const float* k = stage.operand<float>(1 + 2 * i) + row * stride;
        const float* v = stage.operand<float>(2 + 2 * i) + row * stride;
        if (s.steps[i].any()) {
          for (int64_t r = 0; r < next - at; ++r)
            s.steps[i].apply(k + r * stride + tile.col_begin, width / s.a.head_dim, s.a.head_dim,
                             &stage.operands[1 + 2 * num_segments + 2 * i], row + r,
                             page + r * stride + tile.col_begin);
          k = page;
        }
        for (int64_t col = tile.col_begin; col < tile.col_end; col += s.a.head_dim)
          s.append({k + col, v + col, stride, s.slots.data() + at, next - at, s.a.head_dim,
                    s.packed.head(stage.operands[0], item, col / s.a.head_dim, keys)});
      }
      first += tokens;
    }
  }
}

KvFormat format_of(const LowerContext& c) {
  return c.options().exact_f32 ? KvFormat::kF32 : c.options().pack_kv_format;
}

std::vector<int32_t> numbers_to(int64_t count) {
  std::vector<int32_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

Status lower_keys(LowerContext& c) {
  const auto& a = std::any_cast<const PackKvAttrs&>(c.op().attrs);
  const KvFormat format = format_of(c);
  auto* append = c.kernels().kv_append[static_cast<size_t>(format)];
  if (!append) return unsupported("no kernel packs keys and values in this format");
  const Cut cut(a.num_heads, c.workers());
  LoweredStage stage;
  stage.run = run_keys;
  stage.rows = stage.row_tiles = cut.rows;
  stage.cols = a.num_heads * a.head_dim;
  stage.col_begin = LowerContext::cut_columns(stage.cols, a.head_dim, cut.cols);
  std::vector<LowerContext::Operand> operands = {c.at(c.op().outputs[0])};
  size_t at = 2 * a.tokens.size();
  for (size_t i = 0; i < at; ++i) {
    stage.reads.push_back({c.op().inputs[i], Reads::kTile});
    operands.push_back(c.at(c.op().inputs[i]));
  }
  std::vector<StepKernels> steps;
  for (const HeadSteps& of_segment : a.steps) {
    REDLINE_ASSIGN(steps.emplace_back(), lower_steps(c, of_segment, at, stage, operands));
    if (of_segment.any()) stage.buffer_bytes = kKvPageTokens * stage.cols * static_cast<int64_t>(sizeof(float));
  }
  stage.writes = c.op().outputs;
  stage.attrs = std::make_shared<KeysStage>(KeysStage{a, std::move(steps), PackedKeys(format, a.num_heads, a.head_dim),
                                                      append, numbers_to(a.keys.eval(c.options().bounds))});
  c.add_stage(std::move(stage), operands);
  return {};
}

struct AttendStage {
  JointAttentionAttrs a;
  Dim batch, tokens, keys;
  PackedKeys packed;
  void (*attend)(const AttentionArgs&);
  std::vector<int32_t> pages;  ///< 0, 1, 2, ..
  int64_t block_rows;          ///< per kernel call; the last call may have up to kGrain - 1 more
  int64_t col_group;           ///< columns that are stored together: whole heads
  bool has_lengths, prepared;
  PreparedOutput out;
  StepKernels steps;

  /// Number of floats in worker.buffer for the queries of one head after norm and rope.
  int64_t query_floats() const;
};

/// Rows are split at multiples of this.
constexpr int64_t kGrain = 32;

int64_t AttendStage::query_floats() const { return steps.any() ? (block_rows + kGrain) * a.head_dim : 0; }

/// Rows [begin, end) of one item. They attend to `length` keys, or, if causal, to the keys up to their own position.
struct Block {
  int64_t item, begin, end, length;
  bool causal;
};

/// Computes one head of a block into `y`, rows `y_stride` apart. Non-causal rows are passed to the kernel with a
/// position after the last key, so that all of them see the same keys.
void attend_head(const AttendStage& s, const Block& b, const float* q, int64_t q_stride, const KvHeadView& head,
                 float* y, int64_t y_stride, WorkerContext& worker) {
  const int64_t rows = b.end - b.begin, d = s.a.head_dim;
  if (b.length == 0) {
    for (int64_t r = 0; r < rows; ++r) std::memset(y + r * y_stride, 0, static_cast<size_t>(d) * sizeof(float));
    return;
  }
  s.attend({q, q_stride, y, y_stride, rows, 1, d, b.causal ? b.begin : b.length, 0, s.a.scale, s.pages.data(), head, 0,
            b.length, nullptr, worker.scratch});
}

// operands: q, packed keys, key_lengths or null, y, norm weight and table or null
void attend_block(const CpuStage& stage, const Tile& tile, const StepContext& step, const Block& b,
                  WorkerContext& worker) {
  const auto& s = stage.attrs_as<AttendStage>();
  const int64_t d = s.a.head_dim, stride = s.a.num_heads * d, keys = s.keys.eval(step.sizes);
  const int64_t row = b.item * s.tokens.eval(step.sizes) + b.begin;
  const auto* q = stage.operand<float>(0) + row * stride;
  float* y = stage.operand<float>(3) + row * stride;
  auto* queries = static_cast<float*>(worker.buffer);
  float* stored = queries + s.query_floats();
  for (int64_t group = tile.col_begin; group < tile.col_end; group += s.col_group) {
    const int64_t end = std::min(group + s.col_group, tile.col_end);
    for (int64_t col = group; col < end; col += d) {
      const KvHeadView head = s.packed.head(stage.operands[1], b.item, col / d, keys);
      const float* of_head = q + col;
      if (s.steps.any()) {
        for (int64_t r = 0; r < b.end - b.begin; ++r)
          s.steps.apply(q + r * stride + col, 1, d, &stage.operands[4], row + r, queries + r * d);
        of_head = queries;
      }
      float* to = s.prepared ? stored + col - group : y + col;
      attend_head(s, b, of_head, s.steps.any() ? d : stride, head, to, s.prepared ? s.col_group : stride, worker);
    }
    if (s.prepared)
      s.out.write(stored, s.col_group, s.out.rows.eval(step.sizes),
                  {row, row + b.end - b.begin, group, end, tile.index}, stage.operands[3]);
  }
}

void run_attend(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& s = stage.attrs_as<AttendStage>();
  const int64_t tokens = s.tokens.eval(step.sizes), keys = s.keys.eval(step.sizes);
  const RowRange all = rows_of_tile(stage, tile, s.batch.eval(step.sizes) * tokens);
  for (int64_t item = tokens > 0 ? all.begin / tokens : 0; item * tokens < all.end; ++item) {
    const int64_t given = s.has_lengths ? stage.operand<int32_t>(2)[item] : keys;
    const int64_t length = std::clamp<int64_t>(given, 0, keys);
    const int64_t causal_rows = s.a.causal ? std::min(length, tokens) : 0;
    const RowRange wanted = {all.begin - item * tokens, all.end - item * tokens};
    for (bool causal : {true, false}) {
      const RowRange rows = share(causal ? RowRange{0, causal_rows} : RowRange{causal_rows, tokens}, wanted, kGrain);
      for (int64_t begin = rows.begin; begin < rows.end;) {
        const int64_t left = rows.end - begin, count = left < s.block_rows + kGrain ? left : s.block_rows;
        attend_block(stage, tile, step, {item, begin, begin + count, length, causal}, worker);
        begin += count;
      }
    }
  }
}

Status lower_attention(LowerContext& c) {
  // A block of more rows reads the keys fewer times; kMaxFloats floats of rows fit in the L2 cache beside the keys.
  // Output in kI8Tiled is collected for kI8Chunk columns and exceeds L2: reading the keys more often would cost more.
  constexpr int64_t kMaxRows = 1024, kMaxFloats = 1 << 18;
  const auto& op = std::any_cast<const JointAttentionOpAttrs&>(c.op().attrs);
  const KvFormat format = format_of(c);
  auto* attend = c.kernels().attention[static_cast<size_t>(format)];
  if (!attend) return unsupported("no attention kernel for this format of keys and values");
  const auto& in = c.op().inputs;
  const Dim keys = c.in(1).shape[1] + Dim(-kSpareKeys);
  const int64_t pages = (keys.eval(c.options().bounds) + kKvPageTokens - 1) / kKvPageTokens;
  const int64_t cols = op.a.num_heads * op.a.head_dim;
  AttendStage s{op.a,
                op.batch,
                op.tokens,
                keys,
                PackedKeys(format, op.a.num_heads, op.a.head_dim),
                attend,
                numbers_to(pages),
                0,
                op.a.head_dim,
                op.has_lengths,
                !c.out().layouts.only_f32(),
                {},
                {}};
  if (s.prepared) {
    REDLINE_ASSIGN(s.out, PreparedOutput::make(c));
    s.col_group = std::min(std::lcm(op.a.head_dim, c.out().layouts.grain()), cols);
  }
  const int64_t most_floats = c.out().layouts.grain() == kI8Chunk ? 4 * kMaxFloats : kMaxFloats;
  s.block_rows = std::clamp(most_floats / s.col_group / kGrain * kGrain, kGrain, kMaxRows);

  const Cut cut = Cut::of_tasks((cols + s.col_group - 1) / s.col_group, c.workers());
  LoweredStage stage;
  stage.run = run_attend;
  stage.rows = stage.row_tiles = cut.rows;
  stage.cols = cols;
  stage.col_begin = LowerContext::cut_columns(cols, s.col_group, cut.cols);
  stage.reads = {{in[0], Reads::kTile}, {in[1], Reads::kAll}};
  if (s.has_lengths) stage.reads.push_back({in[2], Reads::kAll});
  stage.writes = c.op().outputs;
  if (!s.prepared) stage.in_place_of = in[0];
  std::vector<LowerContext::Operand> operands = {c.at(in[0]), c.at(in[1]), s.has_lengths ? c.at(in[2]) : c.at(nullptr),
                                                 c.at(c.op().outputs[0])};
  size_t at = s.has_lengths ? 3 : 2;
  REDLINE_ASSIGN(s.steps, lower_steps(c, op.steps, at, stage, operands));
  const int64_t stored = s.prepared ? (s.block_rows + kGrain) * s.col_group : 0;
  stage.buffer_bytes = (s.query_floats() + stored) * static_cast<int64_t>(sizeof(float));
  stage.attrs = std::make_shared<AttendStage>(std::move(s));
  c.add_stage(std::move(stage), operands);
  return {};
}

}  // namespace

extern const CpuLowering kPackKvLowering = {&kPackKv, lower_keys};
extern const CpuLowering kJointAttentionLowering = {&kJointAttention, lower_attention};

}  // namespace redline
