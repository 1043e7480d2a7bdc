// Reads pooling, normalization, prompts and lengths from a model's files.
#pragma once

#include "models/checkpoint/checkpoint.h"
#include "redline/embedding.h"

namespace redline {

struct EmbeddingConfig {
  std::optional<Pooling> pooling;  ///< unset: the files do not have it
  bool normalizes = true;
  bool include_prompt = true;  ///< false: pooling ignores the tokens of the prompt
  bool lowercase = false;
  bool is_sentence_transformer = false;  ///< the folder has a modules.json
  int64_t max_length = 0;                ///< 0: unspecified
  std::vector<std::pair<std::string, std::string>> prompts;
  std::string default_prompt;
};

/// Reads sentence-transformers' files of a folder (modules.json, the pooling's config.json, sentence_bert_config.json,
/// config_sentence_transformers.json), or the pooling type of a GGUF file.
/// invalid_argument: a file that is not JSON, or a value of the wrong type. unsupported: a module or pooling that
/// Redline does not run.
Result<EmbeddingConfig> read_embedding_config(const Checkpoint& checkpoint);

/// Values of GGUF's pooling_type, numbered as in llama.cpp.
enum class GgufPooling : int64_t { kNone = 0, kMean = 1, kCls = 2, kLast = 3, kRank = 4 };

}  // namespace redline
