#include "models/unet_names.h"

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

namespace redline {

std::string unet_stored_module(const std::string& module) {
  // Of a level: two layers and the step to the next one.
  constexpr int kPerLevel = 3;
  int level = 0, layer = 0, end = 0;
  const auto matches = [&](const char* pattern) {
    end = 0;
    return std::sscanf(module.c_str(), pattern, &level, &layer, &end) == 2 && end > 0 && level >= 0 && level < 8;
  };
  const auto rest = [&] { return std::string_view(module).substr(static_cast<size_t>(end)); };
  if (matches("down_blocks.%d.attentions.%d.%n"))
    return fmt::format("input_blocks.{}.1.{}", 1 + kPerLevel * level + layer, rest());
  if (matches("up_blocks.%d.attentions.%d.%n"))
    return fmt::format("output_blocks.{}.1.{}", kPerLevel * level + layer, rest());
  if (matches("down_blocks.%d.resnets.%d.%n") && rest() == "time_emb_proj")
    return fmt::format("input_blocks.{}.0.emb_layers.1", 1 + kPerLevel * level + layer);
  if (matches("up_blocks.%d.resnets.%d.%n") && rest() == "time_emb_proj")
    return fmt::format("output_blocks.{}.0.emb_layers.1", kPerLevel * level + layer);
  constexpr std::string_view kMiddle = "mid_block.attentions.0.";
  if (module.starts_with(kMiddle)) return "middle_block.1." + module.substr(kMiddle.size());
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {"mid_block.resnets.0.time_emb_proj", "middle_block.0.emb_layers.1"},
      {"mid_block.resnets.1.time_emb_proj", "middle_block.2.emb_layers.1"},
      {"time_embedding.linear_1", "time_embed.0"},
      {"time_embedding.linear_2", "time_embed.2"},
      {"add_embedding.linear_1", "label_emb.0.0"},
      {"add_embedding.linear_2", "label_emb.0.2"}};
  for (const auto& [name, stored] : kOthers)
    if (name == module) return std::string(stored);
  return "";
}

}  // namespace redline
