// A text encoder of a pipeline, compiled, with its tokenizer and adapters.
#pragma once

#include "diffusion/adapters.h"
#include "diffusion/prompt.h"
#include "models/pipeline.h"
#include "runtime/executable.h"

namespace redline {

class TextEncoder final : public PromptEncoder {
 public:
  /// `name`: the component's ("text_encoder_2"), for messages. `model` and `tokenizer` must fit each other.
  /// `max_adapter_rank`: reserves adapter slots of this rank beside every linear layer.
  static Result<std::unique_ptr<TextEncoder>> make(std::string name, TextEncoderModel model, PromptTokenizer tokenizer,
                                                   const ExecutableOptions& options, int64_t max_adapter_rank,
                                                   RuntimeResources& runtime);
  Result<EncodedText> encode(std::span<const std::string> prompts, int64_t tokens, bool mask_padding) override;
  const Executable& network() const { return network_; }
  AdapterBank& adapters() { return adapters_; }

 private:
  TextEncoder(std::string name, TextEncoderModel model, PromptTokenizer tokenizer)
      : name_(std::move(name)), model_(std::move(model)), tokenizer_(std::move(tokenizer)), adapters_({}) {}
  std::string name_;
  TextEncoderModel model_;
  PromptTokenizer tokenizer_;
  AdapterBank adapters_;
  Executable network_;
};

}  // namespace redline
