#include "text/hf_config.h"

#include <filesystem>

#include "base/mapped_file.h"
#include "text/json_reader.h"

namespace redline {
namespace {

/// "<s>" or {"content": "<s>", ...}.
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
  config.add_bos = optional_bool(json, "add_bos_token");
  config.add_eos = optional_bool(json, "add_eos_token");
  config.add_prefix_space = optional_bool(json, "add_prefix_space");
  config.legacy = optional_bool(json, "legacy");
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

Result<std::unique_ptr<Tokenizer>> tokenizer_from_folder(const std::string& folder) {
  const std::filesystem::path root(folder);
  const auto has = [&](const char* name) {
    std::error_code error;
    return std::filesystem::exists(root / name, error);
  };
  const auto path = [&](const char* name) { return (root / name).string(); };
  HfConfig config;
  if (has("tokenizer_config.json")) {
    REDLINE_ASSIGN(const std::string text, read_text_file(path("tokenizer_config.json")));
    REDLINE_ASSIGN(config, read_hf_config(text).within(folder));
  }
  if (has("generation_config.json")) {
    REDLINE_ASSIGN(const std::string text, read_text_file(path("generation_config.json")));
    REDLINE_TRY(read_generation_config(text, config).within(folder));
  }
  if (has("tokenizer.json")) {
    REDLINE_ASSIGN(const std::string text, read_text_file(path("tokenizer.json")));
    return tokenizer_from_json(text, config).within(path("tokenizer.json"));
  }
  if (has("tokenizer.model")) {
    REDLINE_ASSIGN(const std::string bytes, read_text_file(path("tokenizer.model")));
    return tokenizer_from_sentencepiece(bytes, config).within(path("tokenizer.model"));
  }
  return not_found("{}: no tokenizer.json and no tokenizer.model", folder);
}

}  // namespace redline
