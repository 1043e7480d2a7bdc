// Reads the special tokens in tokenizer_config.json and generation_config.json.
#pragma once

#include <map>
#include <optional>

#include "text/added_tokens.h"
#include "text/gguf_vocab.h"

namespace redline {

struct HfConfig {
  std::string tokenizer_class;
  std::string bos_token, eos_token, unk_token, pad_token, cls_token, sep_token, mask_token;  ///< "": not given
  int64_t max_tokens = 0;  ///< model_max_length; 0: not given or no limit
  std::optional<bool> add_bos, add_eos, add_prefix_space, legacy;
  std::optional<bool> lowercase, strip_accents, separates_chinese;  ///< settings of BertTokenizer
  std::map<int64_t, AddedToken> added_tokens;                       ///< added_tokens_decoder
  std::vector<int64_t> stop_ids;                                    ///< generation_config.json's eos_token_id
};

/// Reads tokenizer_config.json; "" gives the defaults.
Result<HfConfig> read_hf_config(std::string_view tokenizer_config_json);
/// Adds eos_token_id of generation_config.json, a number or a list, to `config`.
Status read_generation_config(std::string_view json, HfConfig& config);

/// Reads tokenizer_config.json, generation_config.json and special_tokens_map.json of a folder; any may be missing.
Result<HfConfig> read_hf_configs(const std::string& folder);

/// Adds the pad_token of special_tokens_map.json unless tokenizer_config.json has one.
Status read_special_tokens_map(std::string_view json, HfConfig& config);
/// Returns true for the CLIP and T5 tokenizer classes, which pad texts to a fixed length.
bool pads_texts(const HfConfig& config);
/// Returns pad_token, or the default of transformers' CLIP or T5 class if no file has one; "" for other classes.
std::string pad_token_of(const HfConfig& config);

Result<std::unique_ptr<Tokenizer>> tokenizer_from_json(std::string_view tokenizer_json, const HfConfig& config);
Result<std::unique_ptr<Tokenizer>> tokenizer_from_sentencepiece(std::string_view model_bytes, const HfConfig& config);
/// Reads a SentencePiece model in GGUF form (tokenizer.ggml.*): pieces, scores, types and the handling of spaces.
/// unsupported: not a BPE model, or a model that normalizes characters, which GGUF's "llama" tokenizer cannot express.
Result<GgufVocab> vocab_from_sentencepiece(std::string_view model_bytes, const HfConfig& config);
/// Makes the tokenizer of BERT's vocab.txt. unsupported: another tokenizer_class.
Result<std::unique_ptr<Tokenizer>> tokenizer_from_vocab_txt(std::string_view text, const HfConfig& config);
/// Makes the tokenizer of CLIP's vocab.json and merges.txt. unsupported: another tokenizer_class.
Result<std::unique_ptr<Tokenizer>> tokenizer_from_vocab_and_merges(std::string_view vocab_json,
                                                                   std::string_view merges_txt, const HfConfig& config);

}  // namespace redline
