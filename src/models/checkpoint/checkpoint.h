// The files of a model in one form for all formats, with Hugging Face's names for settings and tensors.
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
  std::unique_ptr<Tokenizer> tokenizer;  ///< null if the model has none
  Status tokenizer_status;               ///< why there is no tokenizer
  /// Makes a tensor of a model without files, by name and shape. Unset: tensors are read from `tensors`.
  std::function<Result<WeightSource>(const std::string& name, const std::vector<int64_t>& shape)> make_tensor;
  std::vector<int32_t> stop_tokens;  ///< tokens that end a text, from the tokenizer and the generation config, sorted
  ChatTemplateSource chat_template;
  /// description of the quantization method for users; "": none, or the types of the tensors describe it
  std::string quantization;
  std::string
      left_out;  ///< tensors of vision and audio parts, which are not run: "439 tensors of vision_tower"; "": none

  // Properties that the reader of a file format sets, because `config` has no key for them.
  /// GGUF: a sliding window of all layers, for which the config.json of a Llama has no key.
  std::optional<int64_t> sliding_window;
  /// GGUF: a projection has a bias if the file has its tensor; false: according to `config`.
  bool tensors_tell_biases = false;
  const GgufNames* gguf_names = nullptr;  ///< GGUF: names of tensors in the file
  std::string stored_prefix = "model.";   ///< folders: the beginning of names in the files, in place of "model."

  /// Returns the name of the tensor `name` in the file, for messages.
  std::string file_name(const std::string& name) const;

  /// Opens a GGUF file (any part of a split), a Hugging Face folder, or a model of random weights
  /// ("random:llama-1b:q4_0", models/files/random_model.h).
  /// not_found, invalid_argument, unsupported, io: errors of the readers, with path and reason.
  static Result<Checkpoint> open(const std::string& path);
  /// Opens a GGUF file that is already in memory. Errors: as open().
  static Result<Checkpoint> from_gguf(std::shared_ptr<MappedFile> file);
};

/// A form in which models are given: a row of the table in checkpoint.cc.
struct CheckpointOpener {
  bool (*takes)(const std::string& path);  ///< true: the path has this form; the first row that says so opens it
  Result<Checkpoint> (*open)(const std::string& path);
};

/// Returns the token ids under `key`, a number or a list; values that are not valid ids are omitted.
std::vector<int32_t> read_token_ids(const nlohmann::json& config, const char* key);

/// Fills `checkpoint` from a GGUF file, with Hugging Face's names and config keys (gguf_checkpoint.cc). If rows of q
/// and k are in interleaved rope order, WeightSource::source_row restores Hugging Face's order.
Status checkpoint_from_gguf(const GgufFile& file, Checkpoint& checkpoint);

}  // namespace redline
