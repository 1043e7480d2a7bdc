#include "models/checkpoint/gguf_names.h"

#include <fmt/format.h>

namespace redline {
namespace {

constexpr std::string_view kGgufLayers = "blk.";

struct GgufNameParts {
  std::string_view stem, suffix;       ///< suffix: ".weight" or ".bias"; "": the tensor has none ("blk.3.ssm_a")
  std::string_view layer, layer_stem;  ///< for "blk.3.attn_q": "3", "attn_q"; empty outside of layers
};

GgufNameParts parts_of(std::string_view name, std::string_view layers) {
  GgufNameParts p;
  for (const std::string_view suffix : {".weight", ".bias"})
    if (name.ends_with(suffix)) p.suffix = suffix;
  p.stem = name.substr(0, name.size() - p.suffix.size());
  if (!p.stem.starts_with(layers)) return p;
  const std::string_view rest = p.stem.substr(layers.size());
  const size_t end = rest.find('.');
  if (end == std::string_view::npos) return p;
  p.layer = rest.substr(0, end);
  p.layer_stem = rest.substr(end + 1);
  return p;
}

}  // namespace

std::string GgufNames::to_hf(std::string_view name) const {
  const GgufNameParts p = parts_of(name, kGgufLayers);
  for (const GgufName& pair : top)
    if (p.stem == pair.gguf) return fmt::format("{}{}", pair.hf, p.suffix);
  for (const auto& list : {layer, more_layer})
    for (const GgufName& pair : list)
      if (!p.layer_stem.empty() && p.layer_stem == pair.gguf)
        return fmt::format("{}{}.{}{}", hf_layers, p.layer, pair.hf, p.suffix);
  return "";
}

std::string GgufNames::to_gguf(std::string_view name) const {
  const GgufNameParts p = parts_of(name, hf_layers);
  for (const GgufName& pair : top)
    if (p.stem == pair.hf) return fmt::format("{}{}", pair.gguf, p.suffix);
  for (const auto& list : {layer, more_layer})
    for (const GgufName& pair : list)
      if (!p.layer_stem.empty() && p.layer_stem == pair.hf)
        return fmt::format("{}{}.{}{}", kGgufLayers, p.layer, pair.gguf, p.suffix);
  return std::string(name);
}

std::function<int64_t(int64_t)> undo_interleave(int64_t head_dim, int64_t rotary_dim) {
  return [head_dim, rotary_dim](int64_t row) {
    const int64_t half = rotary_dim / 2, in_head = row % head_dim;
    if (in_head >= rotary_dim) return row;  // not rotated
    return row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
  };
}

std::function<int64_t(int64_t)> do_interleave(int64_t head_dim, int64_t rotary_dim) {
  return [head_dim, rotary_dim](int64_t row) {
    const int64_t half = rotary_dim / 2, in_head = row % head_dim;
    if (in_head >= rotary_dim) return row;
    return row - in_head + in_head / 2 + (in_head % 2 == 0 ? 0 : half);
  };
}

}  // namespace redline
