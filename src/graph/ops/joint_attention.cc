#include "graph/ops/joint_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/lower.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/rope.h"
#include "graph/prepared_output.h"
#include "graph/reference.h"

namespace redline {
namespace {

constexpr int64_t kMaxHeadDim = 512;  // of the kernels
/// Rows past the last key of an item in the shape of the packed value: a page may be nearly empty.
constexpr int64_t kSpareKeys = kKvPageTokens - 1;

int64_t even(int64_t head_dim) { return (head_dim + 1) / 2 * 2; }

Status check_heads(std::string_view op, int64_t num_heads, int64_t head_dim) {
  if (num_heads > 0 && head_dim > 0 && head_dim <= kMaxHeadDim) return {};
  return invalid_argument("{}: {} heads of {} elements; heads have 1 to {}", op, num_heads, head_dim, kMaxHeadDim);
}

}  // namespace

// The packed value is [batch, keys + 31, heads * 2 * head_dim up to a pair] float32: what whole pages need at most.
Value joint_keys(GraphBuilder& g, const std::vector<KeySegment>& segments, const Dim& batch, int64_t num_heads,
                 int64_t head_dim) {
  if (Status status = check_heads("joint_keys", num_heads, head_dim); !status.ok()) return g.fail(std::move(status));
  if (segments.empty()) return g.fail(invalid_argument("joint_keys: no keys are given"));
  JointKeysAttrs a{{}, {}, 0, batch, num_heads, head_dim};
  std::vector<Value> inputs;
  for (const KeySegment& s : segments) {
    if (!s.k.valid() || !s.v.valid()) return {};
    const Shape want = {batch * s.tokens, num_heads * head_dim};
    for (Value value : {s.k, s.v})
      if (g.info(value).dtype != DType::kF32 || g.info(value).shape != want)
        return g.fail(invalid_argument("joint_keys: {} is {}, not f32 {}", g.info(value).name,
                                       to_string(g.info(value).shape), to_string(want)));
    inputs.insert(inputs.end(), {s.k, s.v});
    a.tokens.push_back(s.tokens);
    a.steps.emplace_back();
    a.keys = a.keys + s.tokens;
  }
  const Shape packed = {batch, a.keys + Dim(kSpareKeys), num_heads * 2 * even(head_dim)};
  return g.add(kJointKeys, inputs, DType::kF32, packed, a);
}

Value joint_attention(GraphBuilder& g, Value q, const Dim& batch, const Dim& tokens, Value keys, JointAttentionAttrs a,
                      Value key_lengths) {
  if (!q.valid() || !keys.valid()) return {};
  if (Status status = check_heads("joint_attention", a.num_heads, a.head_dim); !status.ok())
    return g.fail(std::move(status));
  const Shape want = {batch * tokens, a.num_heads * a.head_dim};
  if (g.info(q).dtype != DType::kF32 || g.info(q).shape != want)
    return g.fail(invalid_argument("joint_attention: {} is {}, not f32 {}", g.info(q).name, to_string(g.info(q).shape),
                                   to_string(want)));
  const Shape& packed = g.info(keys).shape;
  if (packed.size() != 3 || packed[0] != batch || packed[2] != Dim(a.num_heads * 2 * even(a.head_dim)))
    return g.fail(invalid_argument("joint_attention: keys {} are not {} heads of {} for each of {}, from joint_keys",
                                   to_string(packed), a.num_heads, a.head_dim, batch.to_string()));
  std::vector<Value> inputs = {q, keys};
  if (key_lengths.valid()) {
    if (g.info(key_lengths).dtype != DType::kI32 || g.info(key_lengths).shape != Shape{batch})
      return g.fail(invalid_argument("joint_attention: {} is {}, not i32 {}", g.info(key_lengths).name,
                                     to_string(g.info(key_lengths).shape), to_string({batch})));
    inputs.push_back(key_lengths);
  }
  return g.add(kJointAttention, inputs, DType::kF32, want,
               JointAttentionOpAttrs{a, batch, tokens, key_lengths.valid(), {}});
}

namespace {

/// `x` as the steps leave it; their inputs begin at `at`, which is moved beyond them.
HostTensor stepped(ReferenceContext& c, const HeadSteps& steps, HostTensor x, int64_t head_dim, size_t& at) {
  if (steps.has_norm) rms_norm_reference(x, c.in(at++), steps.eps, x);
  if (steps.has_rope) {
    const HostTensor plain = x;
    rope_reference(plain, c.in(at++), head_dim, x);
  }
  return x;
}

// Row p of item i holds all heads of K, then all heads of V, in float64.
Status keys_reference(ReferenceContext& c) {
  const auto& a = c.attrs<JointKeysAttrs>();
  HostTensor& out = c.out();
  const int64_t batch = out.shape[0], width = a.num_heads * a.head_dim;
  std::vector<HostTensor> keys;
  size_t at = 2 * a.tokens.size();
  for (size_t s = 0; s < a.tokens.size(); ++s) keys.push_back(stepped(c, a.steps[s], c.in(2 * s), a.head_dim, at));
  for (int64_t i = 0; i < batch; ++i) {
    double* to = out.data.data() + i * out.shape[1] * out.shape[2];
    for (size_t s = 0; s < a.tokens.size(); ++s) {
      const HostTensor &k = keys[s], &v = c.in(2 * s + 1);
      const int64_t tokens = k.rows() / batch;
      for (int64_t t = 0; t < tokens; ++t, to += out.shape[2]) {
        std::copy_n(k.row(i * tokens + t), width, to);
        std::copy_n(v.row(i * tokens + t), width, to + width);
      }
    }
  }
  return {};
}

Status attention_reference(ReferenceContext& c) {
  const auto& op = c.attrs<JointAttentionOpAttrs>();
  const JointAttentionAttrs& a = op.a;
  size_t at = op.has_lengths ? 3 : 2;
  const HostTensor q = stepped(c, op.steps, c.in(0), a.head_dim, at);
  const HostTensor& packed = c.in(1);
  const int64_t batch = packed.shape[0], keys = packed.shape[1] - kSpareKeys, width = a.num_heads * a.head_dim;
  const int64_t tokens = batch > 0 ? q.rows() / batch : 0;
  std::vector<double> weight;
  for (int64_t i = 0; i < batch; ++i) {
    const auto given = op.has_lengths ? static_cast<int64_t>(c.in(2).data[static_cast<size_t>(i)]) : keys;
    const int64_t length = std::clamp<int64_t>(given, 0, keys);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t h = 0; h < a.num_heads; ++h) {
        const int64_t seen = a.causal ? std::min(length, t + 1) : length;
        const double* qh = q.row(i * tokens + t) + h * a.head_dim;
        const double* k = packed.data.data() + i * packed.shape[1] * packed.shape[2] + h * a.head_dim;
        weight.assign(static_cast<size_t>(seen), 0);
        double most = -INFINITY, sum = 0;
        for (int64_t p = 0; p < seen; ++p) {
          double dot = 0;
          for (int64_t d = 0; d < a.head_dim; ++d) dot += qh[d] * k[p * packed.shape[2] + d];
          weight[static_cast<size_t>(p)] = dot * a.scale;
          most = std::max(most, dot * a.scale);
        }
        for (double& w : weight) sum += w = std::exp(w - most);
        double* y = c.out().row(i * tokens + t) + h * a.head_dim;
        for (int64_t p = 0; p < seen; ++p)
          for (int64_t d = 0; d < a.head_dim; ++d)
            y[d] += weight[static_cast<size_t>(p)] / sum * k[p * packed.shape[2] + width + d];
      }
  }
  return {};
}

/// Where the pages of an (item, head) lie: one after the other, each its keys, then its values.
struct PackedKeys {
  int64_t element_bytes, num_heads, page_elements;

  PackedKeys(KvFormat format, int64_t heads, int64_t head_dim)
      : element_bytes(format == KvFormat::kF32 ? 4 : 2), num_heads(heads),
        page_elements(kKvPageTokens * even(head_dim)) {}
  KvHeadView head(void* packed, int64_t item, int64_t head, int64_t keys) const {
    const int64_t pages = (keys + kKvPageTokens - 1) / kKvPageTokens;
    auto* k = static_cast<uint8_t*>(packed) + (item * num_heads + head) * pages * 2 * page_elements * element_bytes;
    return {k, k + page_elements * element_bytes, 2 * page_elements};
  }
};

/// Tiles of a stage: as many as workers, by columns first, for those share no keys.
/// More tasks than workers, so that one that waits can take a share of the others' work; where columns do not divide, fewer,
/// for tasks that share the columns read all keys again.
struct Cut {
  int cols, rows;
  static Cut of_tasks(int64_t column_groups, int workers) {
    const Cut fine(column_groups, workers * 4);
    return fine.rows <= 2 ? fine : Cut(column_groups, workers * 2);
  }
  Cut(int64_t column_groups, int workers)
      : cols(static_cast<int>(std::gcd(column_groups, static_cast<int64_t>(workers)))), rows(workers / cols) {}
};

/// Rows of a stage are its tiles, so that nobody takes a tile for an equal part of the rows: it is one rounded by cut().
struct RowRange {
  int64_t begin, end;
};
RowRange rows_of_tile(const Stage& stage, const Tile& tile, int64_t rows) {
  return {rows * tile.row_begin / stage.row_tiles, rows * tile.row_end / stage.row_tiles};
}

/// The part of `span` that goes with [begin, end) of an item: cut at multiples of `grain` from the span's begin, where the
/// last part is never shorter than a grain unless the span is. Which rows meet in a call then never depends on the
/// workers so far that a kernel would choose another way for them.
RowRange share(RowRange span, RowRange wanted, int64_t grain) {
  const int64_t last = std::max<int64_t>(0, (span.end - span.begin) / grain - 1) * grain;
  const auto cut = [&](int64_t at) {
    if (at >= span.end) return span.end;
    return span.begin + std::min(last, std::max<int64_t>(0, at - span.begin) / grain * grain);
  };
  return {cut(wanted.begin), cut(wanted.end)};
}

/// HeadSteps with their kernels; the norm's weight and the table are operands, side by side.
struct StepKernels {
  void (*rms_norm)(const RmsNormArgs&) = nullptr;  ///< nullptr: no norm
  void (*rope)(const RopeArgs&) = nullptr;
  float eps = 0;
  int64_t rotary_dim = 0;

  bool any() const { return rms_norm != nullptr || rope != nullptr; }
  /// `heads` of row `row` of all, from x to y.
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

/// The inputs of the steps from `at` on become operands; `at` is moved beyond them.
Result<StepKernels> lower_steps(LowerContext& c, const HeadSteps& steps, size_t& at, Stage& stage,
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
  JointKeysAttrs a;
  std::vector<StepKernels> steps;
  PackedKeys packed;
  void (*append)(const KvAppendArgs&);
  std::vector<int32_t> slots;  ///< 0, 1, 2, ..
};

// operands: packed, k and v of each segment, norm's weight and table of each. A tile is some heads of some keys.
void run_keys(const Stage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& s = stage.attrs_as<KeysStage>();
  const int64_t keys = s.a.keys.eval(step.sizes), batch = s.a.batch.eval(step.sizes);
  const int64_t stride = s.a.num_heads * s.a.head_dim, width = tile.col_end - tile.col_begin;
  const size_t num_segments = s.a.tokens.size();
  auto* page = static_cast<float*>(worker.buffer);  // keys of a page after their steps
  const RowRange all = rows_of_tile(stage, tile, batch * keys);
  for (int64_t item = keys > 0 ? all.begin / keys : 0; item * keys < all.end; ++item) {
    const RowRange mine = share({0, keys}, {all.begin - item * keys, all.end - item * keys}, kKvPageTokens);
    int64_t first = 0;
    for (size_t i = 0; i < num_segments; ++i) {
      const int64_t tokens = s.a.tokens[i].eval(step.sizes);
      const int64_t begin = std::max(mine.begin, first), end = std::min(mine.end, first + tokens);
      // A page of all heads, then the next: so rows are read from end to end.
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

KvFormat format_of(const LowerContext& c) { return c.options().exact_f32 ? KvFormat::kF32 : c.options().kv_format; }
std::vector<int32_t> numbers_to(int64_t count) {
  std::vector<int32_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

Status lower_keys(LowerContext& c) {
  const auto& a = std::any_cast<const JointKeysAttrs&>(c.op().attrs);
  const KvFormat format = format_of(c);
  auto* append = c.kernels().kv_append[static_cast<size_t>(format)];
  if (!append) return unsupported("no kernel packs keys and values in this format");
  const Cut cut(a.num_heads, c.workers());
  Stage stage;
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
  int64_t block_rows;          ///< of one call, but for a last one of up to kGrain - 1 more
  int64_t col_group;           ///< columns that are stored together: whole heads
  bool has_lengths, prepared;
  PreparedOutput out;
  StepKernels steps;

  /// Floats of worker.buffer that hold the queries of a head after their steps.
  int64_t query_floats() const;
};

/// Rows are cut at multiples of it.
constexpr int64_t kGrain = 32;

int64_t AttendStage::query_floats() const { return steps.any() ? (block_rows + kGrain) * a.head_dim : 0; }

/// Rows [begin, end) of one item, which see `length` keys or, when causal, those up to their own place.
struct Block {
  int64_t item, begin, end, length;
  bool causal;
};

/// One head of a block to `y`, rows `y_stride` apart. Rows that see the same keys are given to the kernel as rows that
/// come after the last of them.
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

// operands: q, packed keys, key_lengths or nothing, y, norm's weight and table or nothing
void attend_block(const Stage& stage, const Tile& tile, const StepContext& step, const Block& b,
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

void run_attend(const Stage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
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
  // More rows share the reading of keys; so many floats of rows stay in the second-level cache beside the keys. What is stored as
  // kI8 waits for kI8Chunk columns and goes beyond it: reading keys more often would cost more.
  constexpr int64_t kMostRows = 1024, kMostFloats = 1 << 18;
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
                !c.out().forms.only_f32(),
                {},
                {}};
  if (s.prepared) {
    REDLINE_ASSIGN(s.out, PreparedOutput::make(c));
    s.col_group = std::min(std::lcm(op.a.head_dim, c.out().forms.grain()), cols);
  }
  const int64_t most_floats = c.out().forms.grain() == kI8Chunk ? 4 * kMostFloats : kMostFloats;
  s.block_rows = std::clamp(most_floats / s.col_group / kGrain * kGrain, kGrain, kMostRows);

  const Cut cut = Cut::of_tasks((cols + s.col_group - 1) / s.col_group, c.workers());
  Stage stage;
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

std::string describe_keys(const std::any& any) {
  const auto& a = std::any_cast<const JointKeysAttrs&>(any);
  const bool steps = std::any_of(a.steps.begin(), a.steps.end(), [](const HeadSteps& s) { return s.any(); });
  return fmt::format("{} segments, {} heads of {}{}", a.tokens.size(), a.num_heads, a.head_dim,
                     steps ? ", +norm, rope" : "");
}
std::string describe_attention(const std::any& any) {
  const auto& op = std::any_cast<const JointAttentionOpAttrs&>(any);
  return fmt::format("{} heads of {}{}{}{}", op.a.num_heads, op.a.head_dim, op.a.causal ? ", causal" : "",
                     op.steps.has_norm ? ", +norm" : "", op.steps.has_rope ? ", +rope" : "");
}

// Scores and sums, of every query with every key.
Dim attention_flops(const Graph& graph, const Op& op) {
  const auto& a = std::any_cast<const JointAttentionOpAttrs&>(op.attrs);
  const Dim keys = graph.value(op.inputs[1]).shape[1] + Dim(-kSpareKeys);
  return a.batch * a.tokens * keys * Dim(4 * a.a.num_heads * a.a.head_dim);
}

}  // namespace

const OpDef kJointKeys = {"joint_keys", keys_reference, lower_keys, describe_keys};
const OpDef kJointAttention = {.name = "joint_attention",
                               .reference = attention_reference,
                               .lower = lower_attention,
                               .describe = describe_attention,
                               .prepares_output = true,
                               .flops = attention_flops};

}  // namespace redline
