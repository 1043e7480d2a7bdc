// Reads Hugging Face folders whose config.json has a "quantization_config".
#pragma once

#include "models/checkpoint/checkpoint.h"

namespace redline {

/// End of messages about unsupported methods: the list of supported ones.
inline constexpr std::string_view kQuantizedCheckpoints =
    "Redline reads GPTQ (2, 4 or 8 bits, act-order too), AWQ (4 bits, version gemm), compressed-tensors' "
    "pack-quantized "
    "(2, 4 or 8 bits) and int-quantized W8A8 (int8 weights, symmetric, a scale for each channel; activations int8, "
    "symmetric, dynamic, a scale for each token), gpt-oss's MXFP4, GGUF files and float weights";

/// Converts the tensors of one quantization method to weights.
struct QuantizedReader {
  std::string name;  ///< name for messages: "GPTQ, 4 bits, groups of 128"; "": the checkpoint is not quantized
  std::vector<std::string_view> types;  ///< safetensors types that the method uses besides floats
  /// Replaces the tensors of each matrix in Checkpoint::tensors by one matrix, NAME.weight. nullptr: the model's family
  /// reads the tensors itself.
  std::function<Status(Checkpoint& checkpoint)> read;
};

/// Returns the reader for config.json's "quantization_config". unsupported: another method, format or scheme; the
/// message says which setting differs and what is read.
Result<QuantizedReader> find_quantized_reader(const Checkpoint& checkpoint);

// One function per method. `config` is the quantization_config. Messages of errors do not have the path.
Result<QuantizedReader> gptq_reader(const nlohmann::json& config);
Result<QuantizedReader> awq_reader(const nlohmann::json& config);
Result<QuantizedReader> pack_quantized_reader(const nlohmann::json& config);
Result<QuantizedReader> int_quantized_reader(const nlohmann::json& config);

/// Returns a setting as text; "nothing" if it is absent.
std::string setting_text(const nlohmann::json& object, const char* key);
/// Returns compressed-tensors' "config_groups", an object with members. unsupported: it is absent, the KV cache has a
/// scheme, or the weights are sparse.
Result<nlohmann::json> config_groups(const nlohmann::json& config);
/// Returns the columns of a group, 1 to 2^31 - 1; 0 for -1, which stands for one group per channel; nullopt for another
/// value.
std::optional<int64_t> read_group_size(const nlohmann::json& value);
/// Returns "channels", or "groups of 128".
std::string group_text(int64_t group_size);

/// Returns the modules that have a tensor NAME.`suffix`.
std::vector<std::string> modules_with(const Checkpoint& checkpoint, std::string_view suffix);

}  // namespace redline
