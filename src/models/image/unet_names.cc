#include "models/image/unet_names.h"

#include <fmt/format.h>

#include <cstdio>
#include <span>
#include <string_view>

namespace redline {
namespace {

using UnetNames = std::span<const std::pair<std::string_view, std::string_view>>;
/// Names in a residual block.
constexpr std::pair<std::string_view, std::string_view> kResnet[] = {{"conv1", "in_layers.2"},
                                                                     {"time_emb_proj", "emb_layers.1"},
                                                                     {"conv2", "out_layers.3"},
                                                                     {"conv_shortcut", "skip_connection"}};
/// Names of the modules around the blocks.
constexpr std::pair<std::string_view, std::string_view> kOthers[] = {{"conv_in", "input_blocks.0.0"},
                                                                     {"conv_out", "out.2"},
                                                                     {"time_embedding.linear_1", "time_embed.0"},
                                                                     {"time_embedding.linear_2", "time_embed.2"},
                                                                     {"add_embedding.linear_1", "label_emb.0.0"},
                                                                     {"add_embedding.linear_2", "label_emb.0.2"}};

std::string_view find(UnetNames names, std::string_view name) {
  for (const auto& [own, stored] : names)
    if (own == name) return stored;
  return {};
}

}  // namespace

std::vector<StoredModule> unet_stored_modules(const std::string& module) {
  // A level has two layers and one down- or upsampler.
  constexpr int kPerLevel = 3;
  int level = 0, layer = 0, end = 0;
  const auto matches = [&](const char* pattern) {
    end = 0;
    return std::sscanf(module.c_str(), pattern, &level, &layer, &end) == 2 && end > 0 && level >= 0 && level < 8 &&
           layer >= 0 && layer < 8;
  };
  const auto rest = [&] { return std::string_view(module).substr(static_cast<size_t>(end)); };
  if (matches("down_blocks.%d.attentions.%d.%n"))
    return {{fmt::format("input_blocks.{}.1.{}", 1 + kPerLevel * level + layer, rest())}};
  if (matches("up_blocks.%d.attentions.%d.%n"))
    return {{fmt::format("output_blocks.{}.1.{}", kPerLevel * level + layer, rest())}};
  if (matches("down_blocks.%d.resnets.%d.%n") && !find(kResnet, rest()).empty())
    return {{fmt::format("input_blocks.{}.0.{}", 1 + kPerLevel * level + layer, find(kResnet, rest()))}};
  if (matches("up_blocks.%d.resnets.%d.%n") && !find(kResnet, rest()).empty())
    return {{fmt::format("output_blocks.{}.0.{}", kPerLevel * level + layer, find(kResnet, rest()))}};
  if (matches("down_blocks.%d.downsamplers.%d.%n") && rest() == "conv")
    return {{fmt::format("input_blocks.{}.0.op", kPerLevel * (level + 1))}};
  if (matches("up_blocks.%d.upsamplers.%d.%n") && rest() == "conv") {
    const int block = kPerLevel * (level + 1) - 1;
    return {{fmt::format("output_blocks.{}.1.conv", block)}, {fmt::format("output_blocks.{}.2.conv", block)}};
  }
  constexpr std::string_view kMiddle = "mid_block.attentions.0.", kMiddleResnet = "mid_block.resnets.";
  if (module.starts_with(kMiddle)) return {{"middle_block.1." + module.substr(kMiddle.size())}};
  for (int i = 0; i < 2; ++i) {
    const std::string prefix = fmt::format("{}{}.", kMiddleResnet, i);
    if (!module.starts_with(prefix)) continue;
    if (const auto stored = find(kResnet, std::string_view(module).substr(prefix.size())); !stored.empty())
      return {{fmt::format("middle_block.{}.{}", 2 * i, stored)}};
  }
  if (const auto stored = find(kOthers, module); !stored.empty()) return {{std::string(stored)}};
  return {};
}

}  // namespace redline
