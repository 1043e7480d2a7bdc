#include "models/checkpoint/text_part.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace redline {
namespace {

// Prefixes of the language model's tensors; the longer ones first, because a shorter one may be their beginning.
constexpr std::string_view kTextPrefixes[] = {"model.language_model.model.",
                                              "model.language_model.",
                                              "language_model.model.",
                                              "model.text_model.",
                                              "language_model.",
                                              "text_model.",
                                              "model.",
                                              ""};
// First words of the modules that read images and sound.
constexpr std::string_view kTowers[] = {"visual", "vision", "image", "audio", "multi_modal", "mm_", "connector"};

bool is_tower(std::string_view module) {
  return std::any_of(std::begin(kTowers), std::end(kTowers),
                     [&](std::string_view word) { return module.starts_with(word); });
}

/// Returns true for encoders that are trained with an image encoder (CLIP): another kind of model.
bool is_contrastive(const nlohmann::json& config) {
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) return false;
  const std::string name = type->get<std::string>();
  return name.starts_with("clip") || name.starts_with("siglip");
}

}  // namespace

TextPart TextPart::take(nlohmann::json& config) {
  TextPart part;
  if (!config.is_object() || is_contrastive(config)) return part;
  const auto is_object = [&](const char* key) { return config.contains(key) && config[key].is_object(); };
  if (!is_object("text_config")) {
    // Some models have the settings of their language model beside those of the image encoder (Qwen2-VL).
    part.is_part_ = config.contains("hidden_size") && (is_object("vision_config") || is_object("audio_config"));
    return part;
  }
  nlohmann::json text = config["text_config"];
  if (is_contrastive(text)) return part;
  part.is_part_ = true;
  if (!text.contains("model_type") && config.contains("model_type") && config["model_type"].is_string())
    text["model_type"] = config["model_type"].get<std::string>() + "_text";
  for (const char* key : {"eos_token_id", "bos_token_id", "pad_token_id", "tie_word_embeddings", "quantization_config"})
    if (config.contains(key) && !text.contains(key)) text[key] = config[key];
  config = std::move(text);
  return part;
}

void TextPart::find_prefix(const std::vector<std::string_view>& stored) {
  constexpr std::string_view kTable = "embed_tokens.weight";
  for (const std::string_view prefix : kTextPrefixes) {
    const auto has_table = [&](std::string_view name) {
      return name.size() == prefix.size() + kTable.size() && name.starts_with(prefix) && name.ends_with(kTable);
    };
    if (std::none_of(stored.begin(), stored.end(), has_table)) continue;
    prefix_ = prefix;
    has_prefix_ = true;
    return;
  }
}

std::string TextPart::name_of(std::string_view stored) {
  constexpr std::string_view kHead = "lm_head.", kOuter = "language_model.";
  if (stored.starts_with(kHead)) return std::string(stored);
  if (stored.starts_with(kOuter) && stored.substr(kOuter.size()).starts_with(kHead))
    return std::string(stored.substr(kOuter.size()));
  if (!has_prefix_) {  // a language model whose embeddings have another name, or none at all
    if (is_part_ && stored.starts_with(kOuter)) return std::string(stored.substr(kOuter.size()));
    return is_part_ ? leave_out(stored, "") : std::string(stored);
  }
  if (!stored.starts_with(prefix_)) return is_part_ ? leave_out(stored, "") : std::string(stored);
  const std::string_view own = stored.substr(prefix_.size());
  if (is_part_ && is_tower(own)) return leave_out(stored, prefix_);
  return fmt::format("model.{}", own);
}

std::string TextPart::leave_out(std::string_view stored, std::string_view prefix) {
  size_t end = stored.find('.', prefix.size());
  if (prefix.empty() && stored.starts_with("model.")) end = stored.find('.', end + 1);
  ++others_[std::string(stored.substr(0, end))];
  return "";
}

std::string TextPart::left_out() const {
  if (others_.empty()) return "";
  int64_t count = 0;
  std::vector<std::string_view> modules;
  for (const auto& [module, tensors] : others_) {
    count += tensors;
    modules.push_back(module);
  }
  return fmt::format("{} tensors of {}", count, fmt::join(modules, " and "));
}

}  // namespace redline
