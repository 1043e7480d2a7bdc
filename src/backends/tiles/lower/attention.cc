// kv_append and attention over the paged cache.
#include "graph/ops/attention.h"

#include "backends/tiles/tile_lowering.h"
#include "graph/ops/kv_append.h"
#include "tensor/kv_limits.h"

namespace redline {
namespace {

using AppendStage = TileStageBuilder<tiles::KvAppend>;

tiles::KvAddress cache_address(const TileLowerContext& c, size_t i) {
  const KvPlace place = c.kv_state(i);
  const StateAttrs& a = c.in(i).state;
  return {.group = static_cast<int32_t>(place.group),
          .width = static_cast<int32_t>(kv_head_width(a.head_dim)),
          .keys = place.keys,
          .values = place.values,
          .head_bytes = place.head_bytes,
          .format = a.format};
}

Status lower_kv_append(TileLowerContext& c) {
  const StateAttrs& a = c.in(2).state;
  AppendStage s(c, tiles::KernelId::kKvAppend);
  s.args.num_heads = static_cast<int32_t>(a.num_heads);
  s.args.head_dim = static_cast<int32_t>(a.head_dim);
  s.args.cache = cache_address(c, 2);
  s.read(&AppendStage::Args::k, c.op().inputs[0], Reads::kRows);
  s.read(&AppendStage::Args::v, c.op().inputs[1], Reads::kRows);
  s.plan().writes.push_back(c.op().outputs[0]);
  s.stage().set_grid(c.in(0).shape[0], a.num_heads * a.head_dim, a.num_heads * a.head_dim, 1, c.row_parts());
  s.add();
  return {};
}

static_assert(tiles::detail::kMaxHeadDim == kMaxKvHeadDim);

template <class Kernel>
Status add_attention(TileLowerContext& c, tiles::KernelId id, ValueId token) {
  using Args = tiles::AttentionArgs;
  constexpr bool kMerges = std::is_same_v<Kernel, tiles::AttentionMerge>;
  const auto& op = std::any_cast<const AttentionOpAttrs&>(c.op().attrs);
  const AttentionAttrs& attrs = op.a;
  const StateAttrs& cache = c.in(2).state;
  TileStageBuilder<Kernel> s(c, id);
  s.args.num_heads = static_cast<int32_t>(attrs.num_heads);
  s.args.num_kv_heads = static_cast<int32_t>(cache.num_heads);
  s.args.head_dim = static_cast<int32_t>(cache.head_dim);
  s.args.window = static_cast<int32_t>(std::min<int64_t>(attrs.window, INT32_MAX));
  s.args.chunk = static_cast<int32_t>(std::min<int64_t>(attrs.chunk, INT32_MAX));
  s.args.scale = attrs.scale;
  s.args.soft_cap = attrs.soft_cap;
  s.args.cache = cache_address(c, 2);
  if (op.has_sinks) REDLINE_TRY(s.dense_weight(&Args::sinks, op.sinks()));
  if (op.has_slopes) REDLINE_TRY(s.dense_weight(&Args::slopes, op.slopes()));
  s.write(&Args::y, c.op().outputs[0]);
  if (kMerges) {
    s.plan().name = c.op().name + ".merge";
    s.plan().reads.push_back({token, Reads::kAll});
  } else {
    s.read(&Args::q, c.op().inputs[0], Reads::kAll);
    s.plan().reads.push_back({c.op().inputs[1], Reads::kAll});
    s.plan().writes.push_back(token);
  }
  s.stage().set_work_partitions(c.multiprocessors(), attrs.num_heads * cache.head_dim);
  s.add();
  return {};
}

Status lower_attention(TileLowerContext& c) {
  const auto& op = std::any_cast<const AttentionOpAttrs&>(c.op().attrs);
  const AttentionAttrs& attrs = op.a;
  const StateAttrs& cache = c.in(2).state;
  REDLINE_TRY(check_attention_order(c.graph(), c.op()));
  if (op.has_mask) return unsupported("attention: devices have no kernel for a mask; the CPU computes it");
  if (op.is_cross) return unsupported("attention: devices have no kernel for cross attention; the CPU computes it");
  if (!attrs.is_causal)
    return unsupported("attention: devices have no kernel for attention that is not causal; the CPU computes it");
  c.need_partials(attrs.num_heads / cache.num_heads * attention_partial_floats(cache.head_dim));
  const ValueId token = c.add_temporary(c.op().name + ".partials", {Dim(0)});
  // Tensor cores round queries and weights as the cache rounds keys and values.
  const bool is_plain = attrs.chunk == 0 && !op.has_slopes;
  if (is_plain && !c.options().exact_f32 && cache.format == KvFormat::kF16 && cache.head_dim % 16 == 0 &&
      cache.head_dim <= tiles::AttentionF16::kMaxHead)
    REDLINE_TRY(add_attention<tiles::AttentionF16>(c, tiles::KernelId::kAttentionF16, token));
  else REDLINE_TRY(add_attention<tiles::Attention>(c, tiles::KernelId::kAttention, token));
  return add_attention<tiles::AttentionMerge>(c, tiles::KernelId::kAttentionMerge, token);
}

constexpr TileLowering kAttentionOps[] = {{&kKvAppend, lower_kv_append}, {&kAttention, lower_attention}};

}  // namespace

extern const TileLowerings kAttentionTileLowerings = kAttentionOps;

}  // namespace redline
