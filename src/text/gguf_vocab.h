// The vocabulary of a GGUF file as plain data.
#pragma once

#include <memory>
#include <optional>

#include "text/tokenizer.h"

namespace redline {

/// Name and text of each chat template; "" is the default one.
using ChatTemplates = std::vector<std::pair<std::string, std::string>>;

/// tokenizer.ggml.* of a GGUF file; missing keys keep the defaults.
struct GgufVocab {
  std::string
      model;        ///< tokenizer.ggml.model: "llama" (SentencePiece BPE), "gpt2" (byte-level BPE), "bert" (WordPiece)
  std::string pre;  ///< tokenizer.ggml.pre: "llama-bpe", "qwen2", ...
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> token_types;  ///< ggml: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string> merges;   ///< pairs of pieces in order of rank, such as "a b"
  int32_t bos = -1, eos = -1, eot = -1, eom = -1, unk = -1, pad = -1, cls = -1, sep = -1;
  std::optional<bool> add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces;
  std::optional<bool> lowercase, strip_accents;  ///< settings of "bert"
  ChatTemplates chat_templates;
};
/// Reads the tokenizer of a Hugging Face folder in GGUF form. not_found: the folder has none. unsupported: GGUF cannot
/// express it (a pre-tokenizer without a name, a Unigram model, ...); the message names it.
Result<GgufVocab> vocab_from_folder(const std::string& folder);
/// Reads chat_template.jinja, else chat_template of tokenizer_config.json (one, or a list of named ones). Empty: the
/// folder has none.
Result<ChatTemplates> chat_templates_from_folder(const std::string& folder);
/// Makes a tokenizer. unsupported: an unknown model or pre-tokenizer; the message names it and lists the known ones.
Result<std::unique_ptr<Tokenizer>> tokenizer_from_gguf(GgufVocab vocab);

/// Makes the tokenizer of a Hugging Face folder: tokenizer.json, else tokenizer.model, with tokenizer_config.json and
/// generation_config.json for the special tokens. not_found: the folder has no such file.
Result<std::unique_ptr<Tokenizer>> tokenizer_from_folder(const std::string& folder);
/// Make the tokenizer of a single file. `config_text` is tokenizer_config.json or "".
Result<std::unique_ptr<Tokenizer>> tokenizer_from_json(std::string_view tokenizer_json, std::string_view config_text);
Result<std::unique_ptr<Tokenizer>> tokenizer_from_sentencepiece(std::string_view model_bytes,
                                                                std::string_view config_text);

/// Reads llama2.c's tokenizer.bin (maximum token length, then score, length and bytes of each piece) as a "llama"
/// vocabulary. The file does not store the number of pieces: `vocab_size` comes from the checkpoint.
Result<GgufVocab> vocab_from_llama2c(std::string_view bytes, int64_t vocab_size);

}  // namespace redline
