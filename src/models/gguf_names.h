// How GGUF files name the tensors of a language-model family.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace redline {

struct GgufName {
  std::string_view gguf, hf;
};

struct GgufNames {
  std::string_view architecture;  ///< general.architecture
  std::span<const GgufName> top;  ///< outside of the layers: "token_embd", "model.embed_tokens"
  /// Within a layer, after "blk.N." and "model.layers.N.".
  std::span<const GgufName> layer;
  std::span<const GgufName> more_layer = {};  ///< the same, what the family adds to a list that it shares
  /// The rows of q_proj and k_proj are in interleaved rope order.
  bool interleaves_rope = false;

  /// Hugging Face's name of a tensor; "": the family has no such tensor.
  std::string to_hf(std::string_view name) const;
  /// GGUF's name of a tensor; the name itself when the family has no such tensor.
  std::string to_gguf(std::string_view name) const;
};

}  // namespace redline
