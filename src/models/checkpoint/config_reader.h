// Reads a model's config.json with checks: a wrong type or value is an error that names the key.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"

namespace redline {

/// Returns `config` with the keys of `defaults` that it does not have; for families whose defaults differ from the
/// common ones. null stays null.
nlohmann::json with_defaults(nlohmann::json config, const nlohmann::json& defaults);
/// Returns the config with the values of a family's own keys under the common names too. `names`: own key, common name.
nlohmann::json with_common_names(nlohmann::json config, std::span<const std::pair<const char*, const char*>> names);

/// A reader that keeps the first error and returns harmless values after it, so that callers read all fields and check
/// status() once.
class ConfigReader {
 public:
  /// `config` must outlive the reader.
  explicit ConfigReader(const nlohmann::json& config) : config_(config) {}

  /// Returns a whole number in [min, max]. Without `fallback` the key is required; null counts as absent.
  int64_t integer(const char* key, int64_t min, int64_t max, std::optional<int64_t> fallback = std::nullopt);
  /// Returns a finite number in [min, max].
  double number(const char* key, double min, double max, std::optional<double> fallback = std::nullopt);
  bool boolean(const char* key, bool fallback);
  std::string text(const char* key, std::string fallback);
  /// Returns the object under `key`; nullptr if it is absent or null.
  const nlohmann::json* object(const char* key);
  bool has(const char* key) const;
  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const Status& status() const { return status_; }

 private:
  const nlohmann::json* find(const char* key) const;
  const nlohmann::json& config_;
  Status status_;
};

}  // namespace redline
