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

/// How a tensor of a GGUF file that is written differs from the checkpoint's.
struct GgufForm {
  /// The checkpoint's row (of a vector: element) that row n is. Rows are counted through all matrices of a tensor.
  std::function<int64_t(int64_t)> stored_row = {};
  bool is_transposed = false;       ///< the checkpoint has [in, out]
  bool is_left_out = false;         ///< a buffer that no file has
  std::string name = {};            ///< of the tensor in GgufNames; "": the checkpoint's
  std::vector<int64_t> shape = {};  ///< empty: the checkpoint's
  /// In place of stored_row: the checkpoint's element that is at a row and column.
  std::function<int64_t(int64_t row, int64_t column)> stored_element = {};
  float (*change)(float value) = nullptr;  ///< of every element
  /// In place of all these: rows [begin, end) of a tensor of `type`.
  std::function<Status(int64_t begin, int64_t end, uint8_t* out)> fill = {};
  DType type = DType::kF32;
};

/// Sets keys of a GGUF file, given without the architecture.
struct GgufKeys {
  std::function<void(std::string_view key, int64_t value)> integer;
  std::function<void(std::string_view key, double value)> number;
  std::function<void(std::string_view key, bool value)> boolean;
  std::function<void(std::string_view key, const std::vector<int32_t>& values)> integers;  ///< by layer
};

struct ModelFamily {
  std::string_view model_type;    ///< config.json's model_type
  std::string_view architecture;  ///< config.json's architectures[0]
  GgufNames gguf;                 ///< how GGUF files of the family name it and its tensors
  Result<LanguageModel> (*build)(const Checkpoint& checkpoint);
  /// Numbers that GGUF files of the family have in addition to the common ones; `set` takes the key without the
  /// architecture.
  using SetNumber = std::function<void(std::string_view key, double value)>;
  void (*gguf_numbers)(const DecoderConfig& config, const SetNumber& set) = nullptr;
  /// The form in GGUF of the tensor with this name in the checkpoint. nullptr: as the checkpoint has it.
  GgufForm (*gguf_form)(const Checkpoint& checkpoint, const DecoderConfig& config, std::string_view name) = nullptr;
  /// config.json with the common keys in place of the family's own, where settings of the file are read from it.
  nlohmann::json (*common_config)(const nlohmann::json& config) = nullptr;
  /// The tensors that are made of one of the checkpoint. nullptr: one, by gguf_form.
  std::vector<GgufForm> (*gguf_parts)(const Checkpoint& checkpoint, const DecoderConfig& config,
                                      std::string_view name) = nullptr;
  /// Keys of the family in addition to the common ones, or in place of them. unsupported: a setting that files do not
  /// state.
  Status (*gguf_keys)(const Checkpoint& checkpoint, const DecoderConfig& config, const GgufKeys& set) = nullptr;
  /// general.architecture of files that are written, if it depends on the model. nullptr: as GgufNames say.
  std::string_view (*gguf_architecture)(const Checkpoint& checkpoint) = nullptr;
  bool gguf_implies_scale = false;  ///< the attention scale follows from other keys
  bool gguf_states_rope = false;    ///< gguf_keys say whether layers rotate
  bool gguf_truncates_yarn = true;  ///< readers of its files round the bounds of yarn's ramp
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
