// Scales of LoRA factors from PEFT's config: adapter_config.json of a folder, or the metadata of a diffusers file.
#pragma once

#include <utility>
#include <vector>

#include "text/json_reader.h"
#include "text/regex.h"

namespace redline {

class LoraConfig {
 public:
  static constexpr int64_t kMaxRank = 1 << 16;

  /// Reads r, lora_alpha, use_rslora, rank_pattern and alpha_pattern; PEFT's defaults stand for what is missing.
  /// invalid_argument: a value of another type, or a pattern that is no regular expression.
  static Result<LoraConfig> read(const Json& config);

  /// Returns the rank in the config for a module: its entry of rank_pattern, else r.
  double rank_of(const std::string& module) const { return ranks_.value(module, static_cast<double>(rank_)); }
  /// Returns lora_alpha / r, or with use_rslora lora_alpha / sqrt(r), for a module whose factors have `rank`.
  /// invalid_argument: the config has another rank; `source` names the config in the message.
  Result<double> scale(const std::string& module, int64_t rank, const char* source) const;

 private:
  /// rank_pattern or alpha_pattern: values by regular expressions for the ends of module names.
  struct Pattern {
    std::vector<std::pair<Regex, double>> entries;

    static Result<Pattern> read(const Json& config, const char* key);
    double value(const std::string& module, double otherwise) const;
  };

  int64_t rank_ = 0;
  double alpha_ = 0;
  bool is_rank_stabilized_ = false;
  Pattern ranks_, alphas_;
};

}  // namespace redline
