#include "models/checkpoint/lora_config.h"

#include <cmath>

#include "models/checkpoint/config_reader.h"

namespace redline {
namespace {

/// Adapters whose rank differs by module name each of them: a few hundred.
constexpr size_t kMaxPatterns = 8192;

}  // namespace

Result<LoraConfig::Pattern> LoraConfig::Pattern::read(const Json& config, const char* key) {
  Pattern pattern;
  const Json* values = member(config, key);
  if (values == nullptr) return pattern;
  if (!values->is_object()) return invalid_argument("{} is not an object", key);
  // Each is compiled, and matched with the name of each module.
  if (values->size() > kMaxPatterns)
    return invalid_argument("{} has {} patterns; the limit is {}", key, values->size(), kMaxPatterns);
  for (const auto& [text, value] : values->items()) {
    if (!value.is_number()) return invalid_argument("{}: {} is not a number", key, text);
    REDLINE_ASSIGN(Regex regex, Regex::compile(fmt::format("^(?:.*\\.)?(?:{})$", text)).within(key));
    pattern.entries.emplace_back(std::move(regex), value.get<double>());
  }
  return pattern;
}

double LoraConfig::Pattern::value(const std::string& module, double otherwise) const {
  for (const auto& [regex, value] : entries) {
    std::vector<Regex::Span> matches;
    regex.find_all(module, matches);
    if (!matches.empty()) return value;
  }
  return otherwise;
}

Result<LoraConfig> LoraConfig::read(const Json& config) {
  ConfigReader r(config);
  LoraConfig lora;
  lora.rank_ = r.integer("r", 1, kMaxRank, 8);
  lora.alpha_ = r.number("lora_alpha", -1e6, 1e6, 8);
  lora.is_rank_stabilized_ = r.boolean("use_rslora", false);
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(lora.ranks_, Pattern::read(config, "rank_pattern"));
  REDLINE_ASSIGN(lora.alphas_, Pattern::read(config, "alpha_pattern"));
  return lora;
}

Result<double> LoraConfig::scale(const std::string& module, int64_t rank, const char* source) const {
  const double stated = rank_of(module);
  if (static_cast<double>(rank) != stated)
    return invalid_argument("{} has rank {}, {} has {}", module, rank, source, stated);
  return alphas_.value(module, alpha_) / (is_rank_stabilized_ ? std::sqrt(stated) : stated);
}

}  // namespace redline
