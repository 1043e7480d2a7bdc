// Prompts to embeddings: each text encoder of a pipeline with its tokenizer.
#pragma once

#include "diffusion/adapters.h"
#include "diffusion/prompt.h"
#include "models/image_models.h"
#include "runtime/network.h"

namespace redline {

/// What an encoder says of some prompts.
struct EncodedText {
  int64_t prompts = 0, tokens = 0;
  int64_t width = 0, pooled_width = 0;
  std::vector<float> hidden;       ///< [prompts, tokens, width]
  std::vector<float> penultimate;  ///< [prompts, tokens, width], of CLIP
  std::vector<float> pooled;       ///< [prompts, pooled_width], of CLIP
  std::vector<int32_t> lengths;    ///< [prompts] tokens before the padding
  std::vector<std::string> warnings;
};

class TextEncoder {
 public:
  /// `name`: the component's ("text_encoder_2"), for messages. `model` and `tokenizer` must fit each other.
  /// `max_adapter_rank`: room for adapters beside every product.
  static Result<std::unique_ptr<TextEncoder>> make(std::string name, TextEncoderModel model, PromptTokenizer tokenizer,
                                                   const NetworkOptions& options, int64_t max_adapter_rank,
                                                   WorkerTeam& team);
  /// Each prompt is padded, or cut with a warning, to `tokens` (0: what the encoder holds). `mask_padding`: T5's tokens
  /// do not attend to the padding; FLUX and SD3 were trained with attention to it.
  Result<EncodedText> encode(std::span<const std::string> prompts, int64_t tokens, bool mask_padding = false);
  int64_t max_tokens() const { return model_.max_tokens; }
  const Network& network() const { return network_; }
  AdapterBank& adapters() { return adapters_; }
  bool is_t5() const { return model_.masks_padding; }

 private:
  TextEncoder(std::string name, TextEncoderModel model, PromptTokenizer tokenizer)
      : name_(std::move(name)), model_(std::move(model)), tokenizer_(std::move(tokenizer)), adapters_({}) {}
  std::string name_;
  TextEncoderModel model_;
  PromptTokenizer tokenizer_;
  AdapterBank adapters_;
  Network network_;
};

}  // namespace redline
