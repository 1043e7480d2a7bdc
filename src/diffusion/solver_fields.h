// Reads a scheduler_config.json and reports fields that nothing has read.
#pragma once

#include <initializer_list>
#include <set>

#include "models/checkpoint/config_reader.h"

namespace redline {

/// A reader of fields that records each field that a solver reads; finish() reports unknown ones.
class SolverFields {
 public:
  /// `config` must outlive the reader.
  explicit SolverFields(const nlohmann::json& config) : config_(config), reader_(config) {}

  int64_t integer(const char* key, int64_t min, int64_t max, int64_t fallback) {
    return known_.insert(key), reader_.integer(key, min, max, fallback);
  }
  double number(const char* key, double min, double max, double fallback) {
    return known_.insert(key), reader_.number(key, min, max, fallback);
  }
  std::optional<double> optional_number(const char* key, double min, double max);
  bool boolean(const char* key, bool fallback) { return known_.insert(key), reader_.boolean(key, fallback); }
  /// Reads a text that must be one of `choices`.
  std::string choice(const char* key, std::initializer_list<const char*> choices, const char* fallback);
  /// Requires that a field is absent or `value`: other values are not supported.
  void only(const char* key, const nlohmann::json& value);
  /// Reads a list of numbers; empty if absent.
  std::vector<double> numbers(const char* key);
  void fail(Status status) { reader_.fail(std::move(status)); }

  /// Returns the first failure, or unsupported: a field that no scheduler of diffusers has.
  Status finish() const;

 private:
  const nlohmann::json& config_;
  ConfigReader reader_;
  std::set<std::string> known_;
};

}  // namespace redline
