// Attention over the KV cache of one layer, or over keys and values that another graph has left.
#pragma once

#include "graph/graph.h"

namespace redline {

struct AttentionAttrs {
  int64_t num_heads = 0;
  int64_t window = 0;     ///< number of positions that a token attends to, including itself; 0: all earlier ones
  float scale = 0;        ///< factor of q . k; usually 1 / sqrt(head_dim)
  float soft_cap = 0;     ///< scores become soft_cap tanh(score / soft_cap); 0: scores are not capped
  bool is_causal = true;  ///< a token attends to its own position and those before it; false: to all of its sequence
  /// Positions are divided into chunks of this many; a token attends to its own chunk only, up to its own position
  /// (Llama 4). 0: there are no chunks.
  int64_t chunk = 0;
};

/// The positions that each token may attend to, as a block-sparse matrix of bits in the manner of CSR. A token attends
/// to a position if the mask has its bit and the attributes allow it too. An entry is a block of kKvPageTokens = 32
/// positions; blocks without an entry are not read. Tokens with the same mask, such as a block of query rows, may name
/// the same entries.
struct AttentionMask {
  Value ranges;  ///< [tokens, 2]  i32: the entries [begin, end) of a token
  Value blocks;  ///< [entries]    i32: entry i is positions [32 blocks[i], 32 blocks[i] + 32), ascending in a range
  Value bits;    ///< [entries]    i32: bit j of entry i is position 32 blocks[i] + j; invalid: all bits are set
};

/// Optional inputs of attention.
struct AttentionInputs {
  Value sinks;   ///< [num_heads]  a weight: a term e^sinks[h] in the softmax's divisor
  Value slopes;  ///< [num_heads]  f32, a weight: the ALiBi slope of each head
  AttentionMask mask;
};

/// Grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245): for each token t of the step and head h, over the
/// visible positions p of the token's sequence,
///   y[t, h] = sum_p softmax_p(cap(scale * q[t, h] . K[p, h / group]) + slopes[h] (p - pos(t))) V[p, h / group]
/// cap is the soft cap of `attrs` (Gemma Team 2024, arXiv:2408.00118). `slopes` is attention with linear biases (Press
/// et al. 2021, arXiv:2108.12409). `sinks` add the term e^sinks[h] to the softmax's divisor, so that a head may attend
/// to nothing (OpenAI 2025, arXiv:2508.10925). A token that sees no position gives zeros.
///
/// Which positions are visible:
/// 1. Self-attention over a cache (`keys` from kv_append): the token's own position and those before it that `window`
///    and `chunk` leave. Without is_causal: all positions of the sequence up to the end of this step.
/// 2. Cross attention (`keys` is a kKeyValue state that this graph does not append to; is_causal must be false): all
///    positions that the sequence has in the state, StateStep::lengths. An encoder's graph has filled the state, see
///    StateAttrs::group and runtime/shared_states.h. A sequence of length 0 gives zeros.
/// 3. A mask hides further positions. Their keys may be anything, their values must be finite.
///
/// q          [tokens, num_heads * head_dim]  f32
/// keys       the value that kv_append returned, or a kKeyValue state. Its heads divide num_heads. A cache that keeps a
///            window needs attrs.window or attrs.chunk within it.
/// returns    [tokens, num_heads * head_dim]  f32
/// invalid_argument: shapes or attributes that do not fit together; a window, a chunk or slopes without is_causal.
Value attention(GraphBuilder& g, Value q, Value keys, AttentionAttrs attrs, const AttentionInputs& inputs = {});

/// Returns the slopes of Press et al. 2021: for a power of two, 2^(-max_bias (h + 1) / num_heads) for head h. Otherwise
/// the slopes of the power of two below, then every second one of those of the power of two above, from the first on.
std::vector<float> alibi_slopes(int64_t num_heads, float max_bias = 8);

/// The inputs of the op are q, the value from kv_append, the cache, then the optional inputs: sinks, slopes, ranges,
/// blocks and bits. In cross attention the cache also takes the place of the value from kv_append.
struct AttentionOpAttrs {
  AttentionAttrs a;
  bool is_cross = false, has_sinks = false, has_slopes = false, has_mask = false, has_bits = false;

  static constexpr size_t kCache = 2;
  /// Indices of optional inputs among the inputs; each is valid only if the op has the input.
  size_t sinks() const { return kCache + 1; }
  size_t slopes() const { return sinks() + (has_sinks ? 1 : 0); }
  size_t ranges() const { return slopes() + (has_slopes ? 1 : 0); }
  size_t blocks() const { return ranges() + 1; }
  size_t bits() const { return ranges() + 2; }
};

extern const OpDef kAttention;

/// The properties that all attention ops of a graph over the states of one group have, for attention plans.
struct AttentionShape {
  int64_t window = 0;  ///< window and name of the state group
  std::string group;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;  ///< sizes of the first op
  bool is_causal = true;                                  ///< all ops are causal
  /// True if in all ops the scores of earlier positions do not depend on the row's own position: rows of several
  /// sequences may then share the reading of common pages.
  bool rows_can_share = true;
};
/// Back ends keep partial results of all attention ops over one state group in the same memory, one op after the other,
/// as the layers of a network are. unsupported: `op` does not depend on the previous attention op over its group.
Status check_attention_order(const Graph& graph, const Op& op);

/// Returns one shape for each group of kKeyValue states that attention reads, in the order of the ops.
std::vector<AttentionShape> attention_shapes(const Graph& graph);

}  // namespace redline
