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

/// How a tensor of a GGUF file that is written differs from the checkpoint's, beyond its name.
struct GgufForm {
  std::function<int64_t(int64_t)> stored_row = {};  ///< the checkpoint's row (of a vector: element) that row n is
  bool is_transposed = false;                       ///< the checkpoint has [in, out]
  bool is_left_out = false;                         ///< a buffer that no file has
};

struct ModelFamily {
  std::string_view model_type;    ///< config.json's model_type
  std::string_view architecture;  ///< config.json's architectures[0]
  GgufNames gguf;                 ///< how GGUF files of the family name it and its tensors
  Result<LanguageModel> (*build)(const Checkpoint& checkpoint);
  /// Numbers that GGUF files of the family have beside the common ones; `set` takes the key without the architecture.
  using SetNumber = std::function<void(std::string_view key, double value)>;
  void (*gguf_numbers)(const DecoderConfig& config, const SetNumber& set) = nullptr;
  /// Of a tensor by the checkpoint's name. nullptr: as the checkpoint has it.
  GgufForm (*gguf_form)(const Checkpoint& checkpoint, const DecoderConfig& config, std::string_view name) = nullptr;
  /// config.json with the common keys in place of the family's own, where settings of the file are read from it.
  nlohmann::json (*common_config)(const nlohmann::json& config) = nullptr;
};

/// How GGUF files of a family, decoder or encoder, name it and its tensors.
struct GgufFamily {
  std::string_view model_type;
  const GgufNames* names;
};
/// By GGUF's general.architecture, and by whether the file states a number of experts where two have one. unsupported:
/// the message lists the known ones.
Result<GgufFamily> find_gguf_family(std::string_view architecture, bool has_experts = false);
/// By config.json's model_type; nullptr: the model is not an encoder.
const EncoderFamily* find_encoder_family(const Checkpoint& checkpoint);
/// By config.json's model_type, else its architectures[0]. unsupported: the message lists the known ones.
Result<const ModelFamily*> find_model_family(const Checkpoint& checkpoint);
/// unsupported: an unknown model_type; the message lists the known ones.
Result<LanguageModel> build_language_model(const Checkpoint& checkpoint);

}  // namespace redline
