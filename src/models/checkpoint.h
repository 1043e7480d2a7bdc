// A model's files in one form, whatever their format: Hugging Face's names for settings and tensors.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "graph/graph.h"
#include "text/tokenizer.h"

namespace redline {

class GgufFile;
struct GgufNames;

struct Checkpoint {
  std::string path;
  std::string format;         ///< "gguf", "safetensors", or "PyTorch": .bin files
  nlohmann::json config;      ///< config.json, or made from GGUF metadata with the same keys
  nlohmann::json generation;  ///< generation_config.json, or {}
  std::map<std::string, WeightSource> tensors;
  std::unique_ptr<Tokenizer> tokenizer;  ///< null when the model has none
  Status tokenizer_status;               ///< why there is none
  /// Makes the tensors of a model without files, by name and shape. Unset: they are read from `tensors`.
  std::function<Result<WeightSource>(const std::string& name, const std::vector<int64_t>& shape)> make_tensor;
  std::vector<int32_t> stop_tokens;  ///< from the tokenizer and the generation config, sorted
  ChatTemplateSource chat_template;
  std::string quantization;  ///< how its matrices are rounded, for people; "": they are not, or the types say so
  std::string
      left_out;  ///< tensors of parts that see or hear, which are not run: "439 tensors of vision_tower"; "": none

  // Facts that the file format states outside of `config`; set by its reader.
  /// GGUF: a sliding window of all layers, which the config.json of a Llama does not have.
  std::optional<int64_t> sliding_window;
  /// GGUF: a projection has a bias if the file has its tensor; false: according to `config`.
  bool tensors_tell_biases = false;
  const GgufNames* gguf_names = nullptr;  ///< GGUF: the file's names

  /// The file's own name of the tensor `name`, for messages.
  std::string file_name(const std::string& name) const;

  /// A GGUF file (any part of a split) or a Hugging Face folder.
  /// not_found, invalid_argument, unsupported, io: errors of the readers, with path and reason.
  static Result<Checkpoint> open(const std::string& path);
  /// A GGUF file that is already in memory. Errors as open().
  static Result<Checkpoint> from_gguf(std::shared_ptr<MappedFile> file);
};

/// The token ids under `key`, a number or a list; values that are not valid ids are left out.
std::vector<int32_t> read_token_ids(const nlohmann::json& config, const char* key);

/// A GGUF file under Hugging Face's names and config keys (gguf_checkpoint.cc). Rows of q and k in interleaved rope
/// order get a WeightSource::source_row that restores Hugging Face's order.
Status checkpoint_from_gguf(const GgufFile& file, Checkpoint& checkpoint);

}  // namespace redline
