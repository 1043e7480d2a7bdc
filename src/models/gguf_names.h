// How GGUF files name the tensors of a language-model family.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace redline {

struct GgufName {
  std::string_view gguf, hf;
};

/// What llama.cpp's quantizer does otherwise for a family (quantize_mix.h).
struct QuantizeTraits {
  bool is_large_at_80_layers = false;  ///< 70 billion parameters: attn_v, shared by eight heads, has at least 5 bits
  bool wants_fine_logits = false;      ///< the matrix of the logits is q8_0
  bool bears_coarse_layers = false;    ///< attn_output and ffn_down of most layers have fewer bits than elsewhere
};

struct GgufNames {
  std::string_view architecture;  ///< general.architecture
  std::span<const GgufName> top;  ///< outside of the layers: "token_embd", "model.embed_tokens"
  /// Within a layer, after "blk.N." and `hf_layers` N ".".
  std::span<const GgufName> layer;
  std::span<const GgufName> more_layer = {};  ///< further names of this family, appended to the shared list
  std::string_view hf_layers = "model.layers.";
  /// The rows of q_proj and k_proj are in interleaved rope order.
  bool interleaves_rope = false;
  /// Of files that state a window: 0: no file does; 1: it is that of all layers; n: of all but every n-th.
  int64_t window_every = 0;
  double window_rope_base = 0;     ///< rope base of layers with a window; 0: that of the others, without scaling
  bool is_recurrent = false;       ///< files need not state heads of attention and the width of an MLP
  bool alternates_groups = false;  ///< value heads of a recurrence are in the order (head of the group, group)
  bool has_experts = false;        ///< of files that state a number of experts: Mixtral's architecture is llama
  std::string_view export_architecture = {};  ///< of files that are written, if it differs: llama.cpp has no "mistral"
  QuantizeTraits quantize = {};

  /// Hugging Face's name of a tensor; "": the family has no such tensor.
  std::string to_hf(std::string_view name) const;
  /// GGUF's name of a tensor; the name itself when the family has no such tensor.
  std::string to_gguf(std::string_view name) const;
};

/// In interleaved order neighbouring rows of a head rotate together; Hugging Face keeps the two halves apart: row i of
/// the first half is interleaved row 2i, row i of the second half is 2i + 1. Rows from rotary_dim on are not rotated.
/// Row n of a checkpoint as a row of the interleaved order, and the reverse:
std::function<int64_t(int64_t)> undo_interleave(int64_t head_dim, int64_t rotary_dim);
std::function<int64_t(int64_t)> do_interleave(int64_t head_dim, int64_t rotary_dim);

/// Sampling settings: the key of GGUF files and that of generation_config.json.
inline constexpr GgufName kGgufSampling[] = {{"general.sampling.temp", "temperature"},
                                             {"general.sampling.top_p", "top_p"},
                                             {"general.sampling.top_k", "top_k"},
                                             {"general.sampling.min_p", "min_p"},
                                             {"general.sampling.penalty_repeat", "repetition_penalty"}};

}  // namespace redline
