// tokenizer_config.json and generation_config.json: what they say about special tokens.
#pragma once

#include <map>
#include <optional>

#include "text/added_tokens.h"
#include "text/gguf_vocab.h"

namespace redline {

struct HfConfig {
  std::string tokenizer_class;
  std::string bos_token, eos_token, unk_token, pad_token;  ///< "": not said
  int64_t max_tokens = 0;  ///< model_max_length; 0: not said, or the huge number that means none
  std::optional<bool> add_bos, add_eos, add_prefix_space, legacy;
  std::map<int64_t, AddedToken> added_tokens;  ///< added_tokens_decoder
  std::vector<int64_t> stop_ids;               ///< generation_config.json's eos_token_id
};

/// "" gives the defaults.
Result<HfConfig> read_hf_config(std::string_view tokenizer_config_json);
/// Adds eos_token_id, a number or a list.
Status read_generation_config(std::string_view json, HfConfig& config);

/// All of them that `folder` has.
Result<HfConfig> read_hf_configs(const std::string& folder);

/// Adds a pad_token that tokenizer_config.json does not name, from special_tokens_map.json.
Status read_special_tokens_map(std::string_view json, HfConfig& config);
/// CLIP's and T5's classes: their texts are padded to a length.
bool pads_texts(const HfConfig& config);
/// pad_token, or what transformers' class of CLIP or T5 has when no file says; "" for others.
std::string pad_token_of(const HfConfig& config);

Result<std::unique_ptr<Tokenizer>> tokenizer_from_json(std::string_view tokenizer_json, const HfConfig& config);
Result<std::unique_ptr<Tokenizer>> tokenizer_from_sentencepiece(std::string_view model_bytes, const HfConfig& config);
/// The same file as tokenizer.ggml.* has it: pieces, scores, types and the treatment of spaces. unsupported: a model that
/// is no BPE, or one that normalizes characters, which GGUF's "llama" tokenizer cannot express.
Result<GgufVocab> vocab_from_sentencepiece(std::string_view model_bytes, const HfConfig& config);
/// vocab.json and merges.txt of CLIP. unsupported: another tokenizer_class.
Result<std::unique_ptr<Tokenizer>> tokenizer_from_vocab_and_merges(std::string_view vocab_json,
                                                                   std::string_view merges_txt, const HfConfig& config);

}  // namespace redline
