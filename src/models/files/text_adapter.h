// Reads LoRA adapters of language models: PEFT folders and llama.cpp's GGUF adapters.
#pragma once

#include "models/checkpoint/adapter_bank.h"
#include "models/registry.h"

namespace redline {

/// The matrices of an adapter file, with the names and the row order of the file.
struct TextAdapterFile {
  std::string path;
  bool is_gguf = false;
  std::string architecture;  ///< GGUF: general.architecture of the base model
  AdapterMatrices matrices;
  int64_t max_rank = 0;
  std::shared_ptr<const MappedFile> file;  ///< the matrices point into it

  /// Opens `path`: a PEFT folder (adapter_config.json with adapter_model.safetensors or .bin), its adapter_model file,
  /// or a GGUF file with general.type "adapter" and adapter.type "lora".
  /// not_found: no such file, or a folder without adapter_config.json. invalid_argument: an incomplete pair, shapes
  /// that do not match, a rank that differs from the config, or no pair. unsupported, by name: DoRA and other variants,
  /// biases, modules_to_save, initializations that change the base weights, tensors that belong to no pair.
  static Result<TextAdapterFile> open(const std::string& path);

  /// Returns the matrices under Hugging Face's module names ("model.layers.0.self_attn.q_proj") in its row order.
  /// invalid_argument: another architecture, or a tensor that the family does not have.
  Result<AdapterMatrices> for_model(const ModelFamily& family, const DecoderConfig& config) const;
};

/// Adds an adapter site to every linear op of a decoder, lm_head included, and to the embedding. Call it before passes
/// run.
AdapterBank make_text_adapter_bank(Graph& graph, int64_t max_rank);

}  // namespace redline
