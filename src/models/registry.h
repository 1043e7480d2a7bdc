// The registry of language-model families. Each family's file defines its row; registry.cc lists them.
#pragma once

#include "models/decoder.h"
#include "models/encoder.h"
#include "models/gguf_names.h"

namespace redline {

struct LanguageModel {
  DecoderConfig config;
  Graph graph;
};

struct ModelFamily {
  std::string_view model_type;    ///< config.json's model_type
  std::string_view architecture;  ///< config.json's architectures[0]
  GgufNames gguf;                 ///< how GGUF files of the family name it and its tensors
  Result<LanguageModel> (*build)(const Checkpoint& checkpoint);
  /// Numbers that GGUF files of the family have beside the common ones; `set` takes the key without the architecture.
  using SetNumber = std::function<void(std::string_view key, double value)>;
  void (*gguf_numbers)(const DecoderConfig& config, const SetNumber& set) = nullptr;
};

/// How GGUF files of a family, decoder or encoder, name it and its tensors.
struct GgufFamily {
  std::string_view model_type;
  const GgufNames* names;
};
/// By GGUF's general.architecture. unsupported: the message lists the known ones.
Result<GgufFamily> find_gguf_family(std::string_view architecture);
/// By config.json's model_type; nullptr: the model is not an encoder.
const EncoderFamily* find_encoder_family(const Checkpoint& checkpoint);
/// By config.json's model_type, else its architectures[0]. unsupported: the message lists the known ones.
Result<const ModelFamily*> find_model_family(const Checkpoint& checkpoint);
/// unsupported: an unknown model_type; the message lists the known ones.
Result<LanguageModel> build_language_model(const Checkpoint& checkpoint);

}  // namespace redline
