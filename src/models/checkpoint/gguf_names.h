// Names of the tensors of a language-model family in GGUF files.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace redline {

class GgufKeyReader;

struct GgufName {
  std::string_view gguf, hf;
};

/// Exceptions that llama.cpp's quantizer makes for a family (quantize_mix.h).
struct QuantizeTraits {
  /// a model of 80 layers is large (70 billion parameters): attn_v, shared by eight heads, gets at least 5 bits
  bool is_large_at_80_layers = false;
  bool wants_fine_logits = false;    ///< the output matrix is q8_0
  bool bears_coarse_layers = false;  ///< attn_output and ffn_down of most layers get fewer bits than in other families
};

struct GgufNames {
  std::string_view architecture;  ///< general.architecture
  std::span<const GgufName> top;  ///< names outside of the layers: "token_embd", "model.embed_tokens"
  /// Names within a layer, after "blk.N." and `hf_layers` N ".".
  std::span<const GgufName> layer;
  std::span<const GgufName> more_layer = {};  ///< further names of this family, appended to the shared list
  std::string_view hf_layers = "model.layers.";
  /// The rows of q_proj and k_proj are in interleaved rope order.
  bool interleaves_rope = false;
  /// Layers that have the window stated in a file. 1: all layers; n: all but every n-th; 0: files of the family state
  /// no window.
  int64_t window_every = 0;
  double window_rope_base = 0;  ///< rope base of layers with a window; 0: the base of the other layers, without scaling
  bool is_recurrent = false;    ///< files may omit the attention heads and the width of the MLP
  bool alternates_groups = false;  ///< value heads of a recurrence are stored in the order (head of the group, group)
  /// the row is for files that state a number of experts: Mixtral's architecture is llama, too
  bool has_experts = false;
  /// architecture of exported files, if it differs: llama.cpp has no "mistral"
  std::string_view export_architecture = {};
  QuantizeTraits quantize = {};
  /// Reads the keys that only files of this family have; nullptr: there are none.
  void (*read_keys)(GgufKeyReader& keys) = nullptr;

  /// Returns Hugging Face's name of a tensor; "" if the family has no such tensor.
  std::string to_hf(std::string_view name) const;
  /// Returns GGUF's name of a tensor; the name itself if the family has no such tensor.
  std::string to_gguf(std::string_view name) const;
};

/// In interleaved order adjacent rows of a head rotate together. Hugging Face keeps the two halves apart: row i of the
/// first half is interleaved row 2i, row i of the second half is 2i + 1. Rows from rotary_dim on are not rotated.
/// undo_interleave() returns the map from row n of a checkpoint to the row in interleaved order; do_interleave() the
/// reverse.
std::function<int64_t(int64_t)> undo_interleave(int64_t head_dim, int64_t rotary_dim);
std::function<int64_t(int64_t)> do_interleave(int64_t head_dim, int64_t rotary_dim);

/// Sampling settings: the key of GGUF files and that of generation_config.json.
inline constexpr GgufName kGgufSampling[] = {{"general.sampling.temp", "temperature"},
                                             {"general.sampling.top_p", "top_p"},
                                             {"general.sampling.top_k", "top_k"},
                                             {"general.sampling.min_p", "min_p"},
                                             {"general.sampling.penalty_repeat", "repetition_penalty"}};

}  // namespace redline
