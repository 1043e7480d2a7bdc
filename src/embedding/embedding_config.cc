#include "embedding/embedding_config.h"

#include <utility>

#include "base/mapped_file.h"
#include "models/checkpoint/config_reader.h"
#include "text/json_reader.h"

namespace redline {
namespace {

/// Reads a JSON file. Returns null if it is not there.
Result<Json> read_optional(const std::string& path) {
  auto text = read_text_file(path);
  if (!text.ok() && text.status().code() == Code::not_found) return Json();
  REDLINE_TRY(text);
  return parse_json(*text, path);
}

/// Reads pooling_mode, or one flag for each mode in files from before version 5.
Status read_pooling(const std::string& path, EmbeddingConfig& config) {
  REDLINE_ASSIGN(const Json json, read_optional(path));
  std::vector<std::string> modes;
  if (const Json* mode = member(json, "pooling_mode")) {
    for (const Json& one : mode->is_array() ? *mode : Json::array({*mode}))
      modes.push_back(one.is_string() ? one.get<std::string>() : spell(one));
  } else {
    for (const char* mode :
         {"cls_token", "lasttoken", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens"})
      if (optional_bool(json, fmt::format("pooling_mode_{}", mode).c_str()).value_or(false))
        modes.emplace_back(mode == std::string_view("weightedmean_tokens") ? "weightedmean" : mode);
  }
  if (modes.size() > 1) return unsupported("{}: {} pooling modes; Redline runs one", path, modes.size());
  if (modes.empty()) modes.emplace_back("mean");
  REDLINE_ASSIGN(config.pooling, pooling_from_name(modes[0]).within(path));
  config.include_prompt = optional_bool(json, "include_prompt").value_or(true);
  return {};
}

Status read_modules(const std::string& folder, const Json& modules, EmbeddingConfig& config) {
  if (!modules.is_array()) return invalid_argument("{}/modules.json: expected a list", folder);
  config.is_sentence_transformer = true;
  config.normalizes = false;
  bool has_pooling = false;
  for (const Json& module : modules) {
    const std::string type = string_or(module, "type", ""), path = string_or(module, "path", "");
    const std::string name = type.substr(type.rfind('.') + 1);
    if (name == "Pooling") {
      // Each Pooling module has a config.json of its own, so only one is supported.
      if (std::exchange(has_pooling, true))
        return unsupported("{}/modules.json: several modules of type {}; Redline runs one", folder, type);
      REDLINE_TRY(read_pooling(fmt::format("{}/{}/config.json", folder, path), config));
    } else if (name == "Normalize") config.normalizes = true;
    else if (name != "Transformer")
      return unsupported("{}/modules.json: a module of type {}; Redline runs Transformer, Pooling and Normalize",
                         folder, type);
  }
  return {};
}

Status read_folder(const std::string& folder, EmbeddingConfig& config) {
  REDLINE_ASSIGN(const Json modules, read_optional(folder + "/modules.json"));
  if (!modules.is_null()) REDLINE_TRY(read_modules(folder, modules, config));
  REDLINE_ASSIGN(const Json sentence, read_optional(folder + "/sentence_bert_config.json"));
  config.max_length = std::max<int64_t>(0, optional_int(sentence, "max_seq_length").value_or(0));
  config.lowercase = optional_bool(sentence, "do_lower_case").value_or(false);
  REDLINE_ASSIGN(const Json settings, read_optional(folder + "/config_sentence_transformers.json"));
  if (const Json* prompts = member(settings, "prompts"); prompts && prompts->is_object())
    for (const auto& [name, text] : prompts->items()) {
      if (!text.is_string())
        return invalid_argument("{}/config_sentence_transformers.json: prompt \"{}\" is {}, expected a string", folder,
                                name, text.type_name());
      config.prompts.emplace_back(name, text.get<std::string>());
    }
  config.default_prompt = string_or(settings, "default_prompt_name", "");
  return {};
}

}  // namespace

Result<EmbeddingConfig> read_embedding_config(const Checkpoint& checkpoint) {
  EmbeddingConfig config;
  if (checkpoint.format != "gguf") {
    REDLINE_TRY(read_folder(checkpoint.path, config));
    return config;
  }
  ConfigReader r(checkpoint.config);
  const int64_t type = r.integer("pooling_type", -1, INT32_MAX, -1);
  REDLINE_TRY(r.status().within(checkpoint.path));
  switch (static_cast<GgufPooling>(type)) {
    case GgufPooling::kMean: config.pooling = Pooling::kMean; break;
    case GgufPooling::kCls: config.pooling = Pooling::kCls; break;
    case GgufPooling::kLast: config.pooling = Pooling::kLast; break;
    case GgufPooling::kNone:
    case GgufPooling::kRank: break;
    default:
      if (type >= 0) return unsupported("{}: pooling_type {}; known are 0 to 4", checkpoint.path, type);
  }
  return config;
}

}  // namespace redline
