// tokenizer_config.json and generation_config.json: what they say about special tokens.
#pragma once

#include <map>
#include <optional>

#include "text/added_tokens.h"
#include "text/gguf_vocab.h"

namespace redline {

struct HfConfig {
  std::string tokenizer_class;
  std::string bos_token, eos_token, unk_token;  ///< "": not said
  std::optional<bool> add_bos, add_eos, add_prefix_space, legacy;
  std::map<int64_t, AddedToken> added_tokens;  ///< added_tokens_decoder
  std::vector<int64_t> stop_ids;               ///< generation_config.json's eos_token_id
};

/// "" gives the defaults.
Result<HfConfig> read_hf_config(std::string_view tokenizer_config_json);
/// Adds eos_token_id, a number or a list.
Status read_generation_config(std::string_view json, HfConfig& config);

Result<std::unique_ptr<Tokenizer>> tokenizer_from_json(std::string_view tokenizer_json, const HfConfig& config);
Result<std::unique_ptr<Tokenizer>> tokenizer_from_sentencepiece(std::string_view model_bytes, const HfConfig& config);

}  // namespace redline
