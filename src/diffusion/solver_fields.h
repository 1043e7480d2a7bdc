// Reading a scheduler_config.json so that nothing in it is overlooked.
#pragma once

#include <initializer_list>
#include <set>

#include "models/config_reader.h"

namespace redline {

/// Notes each field that a solver asks for; finish() then knows the rest.
class SolverFields {
 public:
  /// `config` outlives the reader.
  explicit SolverFields(const nlohmann::json& config) : config_(config), reader_(config) {}

  int64_t integer(const char* key, int64_t least, int64_t most, int64_t fallback) {
    return known_.insert(key), reader_.integer(key, least, most, fallback);
  }
  double number(const char* key, double least, double most, double fallback) {
    return known_.insert(key), reader_.number(key, least, most, fallback);
  }
  std::optional<double> optional_number(const char* key, double least, double most);
  bool boolean(const char* key, bool fallback) { return known_.insert(key), reader_.boolean(key, fallback); }
  /// One of `choices`.
  std::string choice(const char* key, std::initializer_list<const char*> choices, const char* fallback);
  /// Must be absent or `value`, for what we do not do.
  void only(const char* key, const nlohmann::json& value);
  /// Whole numbers or numbers; empty when absent.
  std::vector<double> numbers(const char* key);
  void fail(Status status) { reader_.fail(std::move(status)); }

  /// The first failure; or unsupported, for a field that neither this solver nor another of diffusers' has.
  Status finish() const;

 private:
  const nlohmann::json& config_;
  ConfigReader reader_;
  std::set<std::string> known_;
};

}  // namespace redline
