// The model families that Redline runs: one row each in registry.cc, one file each beside it.
#pragma once

#include "models/decoder.h"

namespace redline {

struct LanguageModel {
  DecoderConfig config;
  Graph graph;
};

struct ModelFamily {
  std::string_view model_type;    ///< config.json's model_type; GGUF's general.architecture
  std::string_view architecture;  ///< config.json's architectures[0]
  bool gguf_interleaves_rope;     ///< GGUF files of it keep q and k rows in interleaved rope order
  Result<LanguageModel> (*build)(const Checkpoint& checkpoint);
};
const std::vector<ModelFamily>& model_families();
/// By model_type; nullptr when there is none.
const ModelFamily* find_model_family(std::string_view model_type);
/// "llama, mistral, qwen2, qwen3"
std::string list_model_types();

/// unsupported: a model_type that no row has; the message lists those there are.
Result<LanguageModel> build_language_model(const Checkpoint& checkpoint);

/// Which products of a Llama-shaped layer add a bias.
struct LlamaBiases {
  bool qkv = false, output = false, mlp = false;
};
/// The layers of Llama, for the families that differ only in settings.
Result<LanguageModel> build_llama_decoder(std::string name, DecoderConfig c, const Checkpoint& checkpoint,
                                          LlamaBiases biases);

Result<LanguageModel> build_llama(const Checkpoint& checkpoint);
Result<LanguageModel> build_mistral(const Checkpoint& checkpoint);
Result<LanguageModel> build_qwen2(const Checkpoint& checkpoint);
Result<LanguageModel> build_qwen3(const Checkpoint& checkpoint);

}  // namespace redline
