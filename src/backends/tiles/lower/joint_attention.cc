// pack_kv, joint_attention and relative_bias_attention: attention without a cache.
#include "graph/ops/joint_attention.h"

#include "backends/tiles/shared_lowering.h"
#include "graph/ops/relative_bias_attention.h"

namespace redline {
namespace {

using PackStage = TileStageBuilder<tiles::PackKv>;
using JointStage = TileStageBuilder<tiles::JointAttention>;
static_assert(std::is_same_v<tiles::JointAttention::Args, tiles::JointAttentionBf16::Args>);
using HeadNormStage = TileStageBuilder<tiles::Norm>;
using HeadRopeStage = TileStageBuilder<tiles::Rope>;

/// Adds the stages of norm and rope for heads [rows, cols] and returns their result. The inputs of the steps begin at
/// `next`, which is advanced past them.
Result<ValueId> add_head_steps(TileLowerContext& c, const HeadSteps& steps, ValueId x, const Dim& rows, int64_t cols,
                               int64_t head_dim, size_t& next) {
  const int64_t tile_cols = std::min(cols, std::max<int64_t>(1, 1024 / head_dim) * head_dim);  // whole heads
  if (steps.has_norm) {
    HeadNormStage s(c, tiles::KernelId::kNorm);
    const ValueId y = c.add_temporary(c.op().name + ".norm", {rows, Dim(cols)});
    s.args.eps = steps.eps;
    s.args.cols = static_cast<int32_t>(head_dim);
    s.args.row_stride = static_cast<int32_t>(cols);
    REDLINE_TRY(s.dense_weight(&HeadNormStage::Args::weight, next++));
    s.read(&HeadNormStage::Args::x, x, Reads::kTile);
    s.write(&HeadNormStage::Args::y, y);
    s.plan().name = c.op().name + ".norm";
    s.plan().in_place_of = x;
    s.stage().set_grid(rows, cols, tile_cols, 8, c.row_parts());
    s.add();
    x = y;
  }
  if (steps.has_rope) {
    HeadRopeStage s(c, tiles::KernelId::kRope);
    const ValueId y = c.add_temporary(c.op().name + ".rope", {rows, Dim(cols)});
    s.args.cols = static_cast<int32_t>(cols);
    s.args.head_dim = static_cast<int32_t>(head_dim);
    s.args.half = static_cast<int32_t>(c.in(next).shape[1].constant() / 2);
    s.read(&HeadRopeStage::Args::x, x, Reads::kTile);
    s.read(&HeadRopeStage::Args::table, c.op().inputs[next++], Reads::kRows);
    s.write(&HeadRopeStage::Args::y, y);
    s.plan().name = c.op().name + ".rope";
    s.plan().in_place_of = x;
    s.stage().set_grid(rows, cols, tile_cols, 8, c.row_parts());
    s.add();
    x = y;
  }
  return x;
}

Status lower_pack_kv(TileLowerContext& c) {
  const auto& a = std::any_cast<const PackKvAttrs&>(c.op().attrs);
  const size_t segments = a.tokens.size();
  if (segments > 2) return unsupported("keys of {} streams; this device has room for 2", segments);
  const int64_t cols = a.num_heads * a.head_dim;
  size_t next = 2 * segments + (a.has_offsets ? 1 : 0);
  std::vector<ValueId> keys;
  for (size_t i = 0; i < segments; ++i) {
    REDLINE_ASSIGN(const ValueId k,
                   add_head_steps(c, a.steps[i], c.op().inputs[2 * i], a.batch * a.tokens[i], cols, a.head_dim, next));
    keys.push_back(k);
  }
  // With one segment, rows of y are those of k and v.
  const Reads how = segments == 1 ? Reads::kRows : Reads::kAll;
  PackStage s(c, tiles::KernelId::kPackKv);
  s.args.cols = static_cast<int32_t>(cols);
  s.row_dim(s.args.tokens, a.tokens[0]);
  s.read(&PackStage::Args::k, keys[0], how);
  s.read(&PackStage::Args::v, c.op().inputs[1], how);
  if (segments == 2) {
    s.row_dim(s.args.second_tokens, a.tokens[1]);
    s.read(&PackStage::Args::second_k, keys[1], how);
    s.read(&PackStage::Args::second_v, c.op().inputs[3], how);
  }
  s.write(&PackStage::Args::y, c.op().outputs[0]);
  s.stage().set_grid(a.batch * a.keys, 2 * cols, cols, 8, c.row_parts());
  s.add();
  return {};
}

/// Sets the arguments that both attention ops have. A task computes one head of some rows.
void add_joint(TileLowerContext& c, JointStage& s, ValueId q, int64_t num_heads, int64_t head_dim, float scale,
               int row_tile) {
  s.args.num_heads = static_cast<int32_t>(num_heads);
  s.args.head_dim = static_cast<int32_t>(head_dim);
  s.args.scale = scale;
  s.read(&JointStage::Args::q, q, Reads::kTile);
  s.write(&JointStage::Args::y, c.op().outputs[0]);
  s.stage().set_grid(c.out().shape[0], num_heads * head_dim, head_dim, row_tile, c.row_parts());
  s.add();
}

Status lower_joint_attention(TileLowerContext& c) {
  const auto& op = std::any_cast<const JointAttentionOpAttrs&>(c.op().attrs);
  const JointAttentionAttrs& a = op.a;
  const int64_t cols = a.num_heads * a.head_dim;
  size_t next = op.has_lengths || op.has_offsets ? 3 : 2;
  REDLINE_ASSIGN(const ValueId q,
                 add_head_steps(c, op.steps, c.op().inputs[0], c.out().shape[0], cols, a.head_dim, next));
  // Vectors of texts are stored and compared for years, and attention is a small part of their time: float32, as on the
  // CPU.
  const bool rounds = !c.options().exact_f32 && !op.has_offsets && a.head_dim <= tiles::JointAttentionBf16::kMaxHead;
  JointStage s(c, rounds ? tiles::KernelId::kJointAttentionBf16 : tiles::KernelId::kJointAttention);
  s.args.kv_stride = static_cast<int32_t>(2 * cols);
  s.args.v_offset = static_cast<int32_t>(cols);
  s.args.causal = a.causal ? 1 : 0;
  s.args.window = static_cast<int32_t>(std::min<int64_t>(a.window, INT32_MAX / 2));
  s.read(&JointStage::Args::k, c.op().inputs[1], Reads::kAll);
  if (op.has_offsets) {
    s.row_dim(s.args.sequences, c.in(2).shape[0] + Dim(-1));
    s.read(&JointStage::Args::offsets, c.op().inputs[2], Reads::kAll);
  } else {
    s.row_dim(s.args.tokens, op.tokens);
    s.row_dim(s.args.keys, c.in(1).shape[1] + Dim(-kSpareKeys));
    if (op.has_lengths) s.read(&JointStage::Args::lengths, c.op().inputs[2], Reads::kAll);
  }
  add_joint(c, s, q, a.num_heads, a.head_dim, a.scale, rounds ? tiles::JointAttentionBf16::kBlockRows : 32);
  return {};
}

Status lower_relative_bias_attention(TileLowerContext& c) {
  const auto& op = std::any_cast<const RelativeBiasAttentionOpAttrs&>(c.op().attrs);
  const RelativeBiasAttentionAttrs& a = op.a;
  // The bias by distance: from max_distance on, all have one bucket.
  const TensorView& table = c.in(3).weight.view;
  std::vector<float> buckets(static_cast<size_t>(a.num_buckets * a.num_heads)), bias;
  unpack_row(table.dtype, table.data, buckets.data(), a.num_buckets * a.num_heads);
  for (int64_t distance = -a.max_distance; distance <= a.max_distance; ++distance) {
    const int64_t first = relative_bucket(distance, a.num_buckets, a.max_distance) * a.num_heads;
    bias.insert(bias.end(), buckets.begin() + first, buckets.begin() + first + a.num_heads);
  }
  JointStage s(c, tiles::KernelId::kJointAttention);
  s.args.kv_stride = static_cast<int32_t>(a.num_heads * a.head_dim);
  s.args.max_distance = static_cast<int32_t>(a.max_distance);
  REDLINE_TRY(s.constant(&JointStage::Args::bias, bias));
  s.row_dim(s.args.tokens, op.tokens);
  s.row_dim(s.args.keys, op.tokens);
  s.read(&JointStage::Args::k, c.op().inputs[1], Reads::kAll);
  s.read(&JointStage::Args::v, c.op().inputs[2], Reads::kAll);
  if (c.op().inputs.size() > 4) s.read(&JointStage::Args::lengths, c.op().inputs[4], Reads::kAll);
  add_joint(c, s, c.op().inputs[0], a.num_heads, a.head_dim, a.scale, 32);
  return {};
}

constexpr TileLowering kJointAttentionOps[] = {
    {&kPackKv, lower_pack_kv},
    {&kJointAttention, lower_joint_attention},
    {&kRelativeBiasAttention, lower_relative_bias_attention},
};

}  // namespace

extern const TileLowerings kJointAttentionTileLowerings = kJointAttentionOps;

}  // namespace redline
