#include "models/text_part.h"

#include <fmt/ranges.h>

#include <vector>

namespace redline {

TextPart TextPart::take(nlohmann::json& config) {
  TextPart part;
  const auto inner = config.find("text_config");
  if (inner == config.end() || !inner->is_object() || !inner->contains("model_type")) return part;
  // A text encoder with an image encoder (CLIP) is another kind of model.
  const std::string type = inner->at("model_type").is_string() ? inner->at("model_type").get<std::string>() : "";
  if (type.starts_with("clip") || type.starts_with("siglip")) return part;
  part.is_part_ = true;
  nlohmann::json text = *inner;
  for (const char* key : {"eos_token_id", "bos_token_id", "pad_token_id", "tie_word_embeddings", "quantization_config"})
    if (config.contains(key) && !text.contains(key)) text[key] = config[key];
  config = std::move(text);
  return part;
}

std::string TextPart::name_of(std::string_view stored) {
  if (!is_part_) return std::string(stored);
  constexpr std::string_view kInside = "model.language_model.", kOutside = "language_model.", kHead = "lm_head.";
  if (stored.starts_with(kInside)) return fmt::format("model.{}", stored.substr(kInside.size()));
  if (stored.starts_with(kOutside)) return std::string(stored.substr(kOutside.size()));
  if (stored.starts_with(kHead)) return std::string(stored);
  size_t end = stored.find('.');
  if (stored.starts_with("model.")) end = stored.find('.', end + 1);
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
