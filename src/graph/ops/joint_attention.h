// Bidirectional or causal attention without a cache, over items or sequences of the step.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "tensor/kv_page.h"

namespace redline {

/// Padding rows after the last key of an item in the packed value's shape: its last page may be nearly empty.
inline constexpr int64_t kSpareKeys = kKvPageTokens - 1;

/// Keys and values of one stream of tokens: text, image, or both.
struct KeySegment {
  Value k, v;  ///< [batch * tokens, num_heads * head_dim]  f32
  Dim tokens;  ///< per batch item
};

struct JointAttentionAttrs {
  int64_t num_heads = 0, head_dim = 0;
  float scale = 0;      ///< factor of q . k; usually 1 / sqrt(head_dim)
  bool causal = false;  ///< row t of an item attends to keys [0, t]; only when queries and keys are the same stream
  int64_t window = 0;   ///< row t attends to keys [t - window, t + window]; 0: all. Not with causal
};

/// Sequences of different lengths, one after the other in the rows of one value: sequence s is rows
/// [offsets[s], offsets[s + 1]). No row is padding.
struct PackedSequences {
  Value offsets;    ///< [sequences + 1]  i32, ascending from 0 to the number of rows
  Dim rows, count;  ///< total number of rows; number of sequences
};

/// Packs the keys and values of all segments of each item, in the given order, into the tiled layout that attention
/// reads (tensor/kv_page.h KvHeadView). Attention ops of several streams share the result.
Value pack_kv(GraphBuilder& g, const std::vector<KeySegment>& segments, const Dim& batch, int64_t num_heads,
              int64_t head_dim);

/// Softmax attention without a cache and without a mask in memory:
///   y[i, t, h] = sum_p softmax_p(scale * q[i, t, h] . K[i, p, h]) V[i, p, h],  p over the keys of item i
/// Joint attention of text and image (Esser et al. 2024, arXiv:2403.03206) is one pack of keys and one joint_attention
/// per stream.
///
/// q            [batch * tokens, num_heads * head_dim]  f32
/// keys         from pack_kv
/// key_lengths  [batch]  i32, optional: keys from this index on are masked; an item of length 0 gives zeros
/// returns like q; can be stored in the layouts that linear ops read
Value joint_attention(GraphBuilder& g, Value q, const Dim& batch, const Dim& tokens, Value keys,
                      JointAttentionAttrs attrs, Value key_lengths = {});

/// Packs the keys and values of sequences. Each row attends to keys of its own sequence, with bits that do not depend
/// on the other sequences.
///
/// k, v     [rows, num_heads * head_dim]  f32
Value pack_kv(GraphBuilder& g, Value k, Value v, const PackedSequences& sequences, int64_t num_heads, int64_t head_dim);
/// q        [rows, num_heads * head_dim]  f32
/// keys     from pack_kv of the same sequences
/// returns like q; can be stored in the layouts that linear ops read
Value joint_attention(GraphBuilder& g, Value q, const PackedSequences& sequences, Value keys,
                      JointAttentionAttrs attrs);

/// Per-head steps applied to queries or keys before attention reads them: RMS norm, then rope. Fused into the ops by
/// passes/fuse_joint_heads.
struct HeadSteps {
  bool has_norm = false, has_rope = false;
  float eps = 0;  ///< epsilon of the norm

  bool any() const { return has_norm || has_rope; }
};

/// Inputs: k and v of each segment; the offsets of sequences; then, for each segment that has them, the norm's weight
/// [head_dim] and the rope table [batch * tokens, rotary_dim] f32
struct PackKvAttrs {
  std::vector<Dim> tokens;       ///< rows per item of each segment
  std::vector<HeadSteps> steps;  ///< steps applied to each segment's keys
  Dim keys, batch;
  int64_t num_heads = 0, head_dim = 0;
  bool has_offsets = false;  ///< the op packs sequences: it has one segment, whose tokens are all rows
};

/// Inputs: q, keys, then optional key_lengths or offsets, the norm's weight and the rope table.
struct JointAttentionOpAttrs {
  JointAttentionAttrs a;
  Dim batch, tokens;
  bool has_lengths = false, has_offsets = false;
  HeadSteps steps;  ///< steps applied to the queries
};

extern const OpDef kPackKv;
extern const OpDef kJointAttention;

}  // namespace redline
