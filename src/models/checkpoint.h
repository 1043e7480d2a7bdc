// A model's files in one shape, whatever format they came in: Hugging Face's names for settings and tensors.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "text/tokenizer.h"

namespace redline {

struct Checkpoint {
  std::string path;
  std::string format;         ///< "gguf" or "safetensors"
  nlohmann::json config;      ///< config.json, or made from GGUF metadata with the same keys
  nlohmann::json generation;  ///< generation_config.json, or {}
  std::map<std::string, WeightSource> tensors;
  std::unique_ptr<Tokenizer> tokenizer;  ///< null when the model has none
  Status tokenizer_status;               ///< why there is none
  /// Makes the tensors of a model without files, by name and shape. Unset: they are read from `tensors`.
  std::function<Result<WeightSource>(const std::string& name, const std::vector<int64_t>& shape)> make_tensor;
  std::vector<int32_t> stop_tokens;  ///< from the tokenizer and the generation config, sorted

  /// What the file itself calls the tensor that `tensors` holds as `name`: for messages.
  std::string file_name(const std::string& name) const;

  /// A GGUF file (any part of a split) or a Hugging Face folder.
  /// not_found, invalid_argument, unsupported, io: as the readers say, with path and reason.
  static Result<Checkpoint> open(const std::string& path);
  /// A GGUF file that is already in memory. Errors as open().
  static Result<Checkpoint> from_gguf(std::shared_ptr<MappedFile> file);
};

/// The token ids under `key`, which holds one or a list; what no vocabulary can hold is left out.
std::vector<int32_t> read_token_ids(const nlohmann::json& config, const char* key);

/// Hugging Face's names and config keys for a GGUF file of the llama, qwen2 and qwen3 architectures (gguf_names.cc).
/// The llama architecture stores q and k rows in interleaved rope order; their WeightSource::source_row undoes it.
class GgufFile;
Status checkpoint_from_gguf(const GgufFile& file, Checkpoint& checkpoint);

}  // namespace redline
