// The registry of language-model families. Each family's file defines its row; registry.cc lists them.
#pragma once

#include "models/blocks/decoder.h"
#include "models/blocks/encoder.h"
#include "models/checkpoint/gguf_names.h"

namespace redline {

struct LanguageModel {
  DecoderConfig config;
  Graph graph;
};

/// Differences of a tensor in an exported GGUF file from the checkpoint's tensor.
struct GgufForm {
  /// Maps row n (element n of a vector) to the checkpoint's row. Rows are counted through all matrices of a tensor.
  std::function<int64_t(int64_t)> stored_row = {};
  bool is_transposed = false;       ///< the checkpoint's matrix is [in, out]
  bool is_left_out = false;         ///< the tensor is a buffer that GGUF files do not have
  std::string name = {};            ///< name of the tensor in GgufNames; "": the checkpoint's name
  std::vector<int64_t> shape = {};  ///< empty: the checkpoint's shape
  /// Replaces stored_row: maps a row and column to the checkpoint's element.
  std::function<int64_t(int64_t row, int64_t column)> stored_element = {};
  float (*change)(float value) = nullptr;  ///< applied to every element
  /// Replaces all of these: writes rows [begin, end) of a tensor of `type`.
  std::function<Status(int64_t begin, int64_t end, uint8_t* out)> fill = {};
  DType type = DType::kF32;
};

/// Sets keys of a GGUF file, given without the architecture.
struct GgufKeys {
  std::function<void(std::string_view key, int64_t value)> integer;
  std::function<void(std::string_view key, double value)> number;
  std::function<void(std::string_view key, bool value)> boolean;
  std::function<void(std::string_view key, const std::vector<int32_t>& values)> integers;  ///< one value per layer
};

struct ModelFamily {
  std::string_view model_type;    ///< config.json's model_type
  std::string_view architecture;  ///< config.json's architectures[0]; used if model_type is unknown or missing
  GgufNames gguf;                 ///< names of the family and its tensors in GGUF files
  Result<LanguageModel> (*build)(const Checkpoint& checkpoint, const DecoderOutputs& outputs);
  /// Further values of model_type, for the language models of multimodal models, which are this one.
  std::span<const std::string_view> other_types = {};
  /// Sets numbers that GGUF files of the family have in addition to the common ones; `set` takes the key without the
  /// architecture.
  using SetNumber = std::function<void(std::string_view key, double value)>;
  void (*gguf_numbers)(const DecoderConfig& config, const SetNumber& set) = nullptr;
  /// Returns the form in GGUF of the checkpoint's tensor with this name. nullptr: tensors do not change.
  GgufForm (*gguf_form)(const Checkpoint& checkpoint, const DecoderConfig& config, std::string_view name) = nullptr;
  /// Returns config.json with the common keys instead of the family's own, for settings of the GGUF file. nullptr: no
  /// change.
  nlohmann::json (*common_config)(const nlohmann::json& config) = nullptr;
  /// Returns the tensors that are made of one tensor of the checkpoint. nullptr: one tensor, with gguf_form.
  std::vector<GgufForm> (*gguf_parts)(const Checkpoint& checkpoint, const DecoderConfig& config,
                                      std::string_view name) = nullptr;
  /// Sets keys of the family in addition to the common ones, or instead of them. unsupported: a setting that GGUF
  /// cannot express.
  Status (*gguf_keys)(const Checkpoint& checkpoint, const DecoderConfig& config, const GgufKeys& set) = nullptr;
  /// Returns general.architecture of exported files, if it depends on the model. nullptr: it is that of GgufNames.
  std::string_view (*gguf_architecture)(const Checkpoint& checkpoint) = nullptr;
  bool gguf_implies_scale = false;  ///< the attention scale follows from other keys
  bool gguf_states_rope = false;    ///< gguf_keys says which layers have rope
  bool gguf_truncates_yarn = true;  ///< readers of the family's files round the bounds of yarn's ramp
};

/// Names of a family, decoder or encoder, and of its tensors in GGUF files.
struct GgufFamily {
  std::string_view model_type;
  const GgufNames* names;
};
/// Returns the family with this general.architecture. If two families share it, `has_experts` decides: the file states
/// a number of experts. unsupported: an unknown architecture; the message lists the known ones.
Result<GgufFamily> find_gguf_family(std::string_view architecture, bool has_experts = false);
/// Returns the family of config.json's model_type; nullptr if the model is not an encoder.
const EncoderFamily* find_encoder_family(const Checkpoint& checkpoint);
/// Returns the family of config.json's model_type; if that is unknown, the family of its architectures[0]. unsupported:
/// an unknown family; the message lists the known ones.
Result<const ModelFamily*> find_model_family(const Checkpoint& checkpoint);
/// Builds the graph of a checkpoint's family, with the outputs that the caller reads. unsupported: an unknown
/// model_type; the message lists the known ones.
Result<LanguageModel> build_language_model(const Checkpoint& checkpoint, const DecoderOutputs& outputs = {});

}  // namespace redline
