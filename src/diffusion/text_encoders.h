// A text encoder of a pipeline, compiled, with its tokenizer and adapters.
#pragma once

#include "diffusion/adapters.h"
#include "diffusion/prompt.h"
#include "models/pipeline.h"
#include "runtime/executable.h"

namespace redline {

/// Runs a text encoder's network for one text. `pooled_row`: of CLIP; `key_length`: of T5, tokens that are attended to.
Status run_text_encoder(Executable& network, std::span<const int32_t> ids, int64_t pooled_row, int64_t key_length,
                        const NetworkAdapters& adapters);

class TextEncoder final : public PromptEncoder {
 public:
  /// `name`: the component's ("text_encoder_2"), for messages. `model` and `tokenizer` must fit each other.
  /// `max_adapter_rank`: gives every linear layer an adapter site of this rank.
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
