// A compiled text encoder of a pipeline, with its tokenizer and adapters.
#pragma once

#include "diffusion/adapters.h"
#include "diffusion/prompt.h"
#include "models/image/pipeline.h"
#include "runtime/executable.h"

namespace redline {

/// Runs a text encoder's network for one text. `pooled_row`: row of CLIP's pooled output; `key_length`: number of
/// tokens that T5 attends to.
Status run_text_encoder(Executable& network, std::span<const int32_t> ids, int64_t pooled_row, int64_t key_length,
                        const NetworkAdapters& adapters);

class TextEncoder final : public PromptEncoder {
 public:
  /// `name`: name of the component ("text_encoder_2"), for messages. `model` and `tokenizer` must fit each other.
  /// `max_adapter_rank`: every linear layer gets an adapter site of this rank.
  static Result<std::unique_ptr<TextEncoder>> make(std::string name, TextEncoderModel model, PromptTokenizer tokenizer,
                                                   const ExecutableOptions& options, int64_t max_adapter_rank,
                                                   RuntimeResources& runtime);
  Result<EncodedText> encode(std::span<const std::string> prompts, int64_t tokens, bool mask_padding) override;
  const Executable& network() const { return network_; }
  NetworkAdapters& adapters() { return adapters_; }

 private:
  TextEncoder(std::string name, TextEncoderModel model, PromptTokenizer tokenizer)
      : name_(std::move(name)), model_(std::move(model)), tokenizer_(std::move(tokenizer)) {}
  std::string name_;
  TextEncoderModel model_;
  PromptTokenizer tokenizer_;
  NetworkAdapters adapters_;
  Executable network_;
};

}  // namespace redline
