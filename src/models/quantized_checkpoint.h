// Hugging Face folders whose config.json has a "quantization_config".
#pragma once

#include "models/checkpoint.h"

namespace redline {

/// The end of messages about others.
inline constexpr std::string_view kQuantizedCheckpoints =
    "Redline reads GPTQ (2, 4 or 8 bits, act-order too), AWQ (4 bits, version gemm), compressed-tensors' "
    "pack-quantized "
    "(2, 4 or 8 bits) and int-quantized W8A8 (int8 weights, symmetric, a scale for each channel; activations int8, "
    "symmetric, dynamic, a scale for each token), gpt-oss's MXFP4, GGUF files and float weights";

/// How the tensors of one method become weights.
struct QuantizedReader {
  std::string name;  ///< for people: "GPTQ, 4 bits, groups of 128"; "": the checkpoint is not quantized
  std::vector<std::string_view> types;  ///< safetensors types that it reads besides floats
  /// Replaces the tensors of each matrix in Checkpoint::tensors by the matrix, NAME.weight. nullptr: the family does.
  std::function<Status(Checkpoint& checkpoint)> read;
};

/// By config.json's "quantization_config". unsupported: another method, format or scheme; the message says which
/// setting differs and what is read.
Result<QuantizedReader> find_quantized_reader(const Checkpoint& checkpoint);

// The methods. `config` is the quantization_config. Errors are without the path.
Result<QuantizedReader> gptq_reader(const nlohmann::json& config);
Result<QuantizedReader> awq_reader(const nlohmann::json& config);
Result<QuantizedReader> pack_quantized_reader(const nlohmann::json& config);
Result<QuantizedReader> int_quantized_reader(const nlohmann::json& config);

/// A setting as text: "nothing" where it is absent.
std::string setting_text(const nlohmann::json& object, const char* key);
/// "config_groups" of compressed-tensors, an object with members. unsupported: there is none, the cache has a scheme, or
/// the weights are sparse.
Result<nlohmann::json> config_groups(const nlohmann::json& config);
/// The columns of a group, 1 to 2^31 - 1; 0 for -1, channels; nullopt: another value.
std::optional<int64_t> read_group_size(const nlohmann::json& value);
/// "channels", or "groups of 128".
std::string group_text(int64_t group_size);

/// The modules that have a tensor NAME.`suffix`.
std::vector<std::string> modules_with(const Checkpoint& checkpoint, std::string_view suffix);

}  // namespace redline
