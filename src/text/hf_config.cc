#include "text/hf_config.h"

#include <filesystem>

#include "base/mapped_file.h"
#include "text/json_reader.h"
#include "text/rwkv.h"

namespace redline {
namespace {

/// Returns the text of a token that is given as "<s>" or as {"content": "<s>", ...}.
std::string token_text(const Json& object, const char* key) {
  const Json* value = member(object, key);
  if (!value) return "";
  return value->is_string() ? value->get_ref<const std::string&>() : string_or(*value, "content", "");
}

}  // namespace

Result<HfConfig> read_hf_config(std::string_view text) {
  HfConfig config;
  if (text.empty()) return config;
  REDLINE_ASSIGN(const Json json, parse_json(text, "tokenizer_config.json"));
  if (!json.is_object()) return invalid_argument("tokenizer_config.json: expected an object, got {}", json.type_name());
  config.tokenizer_class = string_or(json, "tokenizer_class", "");
  config.bos_token = token_text(json, "bos_token");
  config.eos_token = token_text(json, "eos_token");
  config.unk_token = token_text(json, "unk_token");
  config.pad_token = token_text(json, "pad_token");
  config.cls_token = token_text(json, "cls_token");
  config.sep_token = token_text(json, "sep_token");
  config.mask_token = token_text(json, "mask_token");
  // transformers writes 10^30 for "no limit".
  constexpr int64_t kMaxTokens = int64_t{1} << 30;
  const int64_t max_tokens = optional_int(json, "model_max_length").value_or(0);
  config.max_tokens = max_tokens > 0 && max_tokens <= kMaxTokens ? max_tokens : 0;
  config.add_bos = optional_bool(json, "add_bos_token");
  config.add_eos = optional_bool(json, "add_eos_token");
  config.add_prefix_space = optional_bool(json, "add_prefix_space");
  config.legacy = optional_bool(json, "legacy");
  config.lowercase = optional_bool(json, "do_lower_case");
  config.strip_accents = optional_bool(json, "strip_accents");
  config.separates_chinese = optional_bool(json, "tokenize_chinese_chars");
  if (const Json* added = member(json, "added_tokens_decoder")) {
    if (!added->is_object())
      return invalid_argument("tokenizer_config.json: added_tokens_decoder is {}, expected an object",
                              added->type_name());
    for (const auto& [key, value] : added->items()) {
      if (key.empty() || key.size() > 8 || key.find_first_not_of("0123456789") != std::string::npos) {
        return invalid_argument("tokenizer_config.json: added_tokens_decoder has the key \"{}\", expected a token id",
                                key);
      }
      AddedToken token;
      token.id = static_cast<TokenId>(std::stol(key));
      token.content = string_or(value, "content", "");
      if (token.content.empty()) return invalid_argument("tokenizer_config.json: added token {} has no content", key);
      token.special = optional_bool(value, "special").value_or(false);
      token.single_word = optional_bool(value, "single_word").value_or(false);
      token.lstrip = optional_bool(value, "lstrip").value_or(false);
      token.rstrip = optional_bool(value, "rstrip").value_or(false);
      config.added_tokens[token.id] = std::move(token);
    }
  }
  return config;
}

Status read_generation_config(std::string_view text, HfConfig& config) {
  REDLINE_ASSIGN(const Json json, parse_json(text, "generation_config.json"));
  const Json* eos = member(json, "eos_token_id");
  if (!eos) return {};
  const auto add = [&](const Json& id) -> Status {
    if (!id.is_number_integer())
      return invalid_argument("generation_config.json: eos_token_id holds {}, expected integers", id.type_name());
    config.stop_ids.push_back(id.get<int64_t>());
    return {};
  };
  if (!eos->is_array()) return add(*eos);
  for (const Json& id : *eos) REDLINE_TRY(add(id));
  return {};
}

Status read_special_tokens_map(std::string_view text, HfConfig& config) {
  REDLINE_ASSIGN(const Json json, parse_json(text, "special_tokens_map.json"));
  if (config.pad_token.empty()) config.pad_token = token_text(json, "pad_token");
  return {};
}

bool pads_texts(const HfConfig& config) {
  return config.tokenizer_class.starts_with("CLIPTokenizer") || config.tokenizer_class.starts_with("T5Tokenizer");
}

std::string pad_token_of(const HfConfig& config) {
  if (!config.pad_token.empty() || !pads_texts(config)) return config.pad_token;
  return config.tokenizer_class.starts_with("T5") ? "<pad>" : "<|endoftext|>";
}

namespace {

class Folder {
 public:
  explicit Folder(const std::string& path) : root_(path) {}
  bool has(const char* name) const {
    std::error_code error;
    return std::filesystem::exists(root_ / name, error);
  }
  std::string path(const char* name) const { return (root_ / name).string(); }

 private:
  std::filesystem::path root_;
};

}  // namespace

Result<HfConfig> read_hf_configs(const std::string& folder) {
  const Folder files(folder);
  const auto has = [&](const char* name) { return files.has(name); };
  const auto path = [&](const char* name) { return files.path(name); };
  HfConfig config;
  if (has("tokenizer_config.json")) {
    REDLINE_ASSIGN(const std::string text, read_text_file(path("tokenizer_config.json")));
    REDLINE_ASSIGN(config, read_hf_config(text).within(path("tokenizer_config.json")));
  }
  if (has("generation_config.json")) {
    REDLINE_ASSIGN(const std::string text, read_text_file(path("generation_config.json")));
    REDLINE_TRY(read_generation_config(text, config).within(path("generation_config.json")));
  }
  if (has("special_tokens_map.json")) {
    REDLINE_ASSIGN(const std::string text, read_text_file(path("special_tokens_map.json")));
    REDLINE_TRY(read_special_tokens_map(text, config).within(path("special_tokens_map.json")));
  }
  return config;
}

Result<std::unique_ptr<Tokenizer>> tokenizer_from_folder(const std::string& folder) {
  REDLINE_ASSIGN(const HfConfig config, read_hf_configs(folder));
  const Folder files(folder);
  const auto has = [&](const char* name) { return files.has(name); };
  const auto path = [&](const char* name) { return files.path(name); };
  if (has("tokenizer.json")) {
    REDLINE_ASSIGN(const std::string text, read_text_file(path("tokenizer.json")));
    return tokenizer_from_json(text, config).within(path("tokenizer.json"));
  }
  for (const char* name : {"tokenizer.model", "spiece.model"}) {
    if (!has(name)) continue;
    REDLINE_ASSIGN(const std::string bytes, read_text_file(path(name)));
    return tokenizer_from_sentencepiece(bytes, config).within(path(name));
  }
  if (has("vocab.json") && has("merges.txt")) {
    REDLINE_ASSIGN(const std::string vocab, read_text_file(path("vocab.json")));
    REDLINE_ASSIGN(const std::string merges, read_text_file(path("merges.txt")));
    return tokenizer_from_vocab_and_merges(vocab, merges, config).within(folder);
  }
  if (has("vocab.txt")) {
    REDLINE_ASSIGN(const std::string vocab, read_text_file(path("vocab.txt")));
    return tokenizer_from_vocab_txt(vocab, config).within(folder);
  }
  if (constexpr const char* kRwkvVocab = "rwkv_vocab_v20230424.txt"; has(kRwkvVocab)) {
    REDLINE_ASSIGN(const std::string vocab, read_text_file(path(kRwkvVocab)));
    return tokenizer_from_rwkv_vocab(vocab, config).within(path(kRwkvVocab));
  }
  return not_found(
      "{}: no tokenizer.json, no tokenizer.model, no spiece.model, no vocab.txt and no vocab.json with merges.txt",
      folder);
}

}  // namespace redline
