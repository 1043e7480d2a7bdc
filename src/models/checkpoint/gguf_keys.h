// Reads the settings of a language model from the metadata of a GGUF file, under the keys of config.json.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "formats/gguf.h"

namespace redline {

/// A reader of the keys that begin with the file's architecture. It stores each value under a key of config.json; a key
/// that the file does not have stays absent. The first error is kept, so that callers check status() once.
class GgufKeyReader {
 public:
  /// `file` and `config` must outlive the reader. `layers_differ`: some layers have no attention, so that a list of
  /// values may have zeros.
  GgufKeyReader(const GgufFile& file, std::string_view architecture, bool layers_differ, nlohmann::json& config)
      : file_(file), architecture_(architecture), layers_differ_(layers_differ), config_(config) {}

  /// Reads a whole number from 0 to 2^31 - 1. A list, one value per layer, is one number if all its values agree.
  /// unsupported: they differ; invalid_argument: another type or size.
  void integer(std::string_view key, const char* name);
  /// Reads a number or a list of whole numbers, one per layer, as it is.
  void integers(std::string_view key, const char* name);
  /// Reads a list of numbers, one per layer, as it is.
  void numbers(std::string_view key, const char* name);
  void number(std::string_view key, const char* name);
  void boolean(std::string_view key, const char* name);
  /// Returns the value of a key; nullptr if the file does not have it.
  const GgufValue* find(std::string_view key) const { return file_.find(full_name(key)); }
  std::string full_name(std::string_view key) const;

  const GgufFile& file() const { return file_; }
  nlohmann::json& config() { return config_; }
  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const Status& status() const { return status_; }

 private:
  Result<std::optional<int64_t>> find_integer(std::string_view key) const;

  const GgufFile& file_;
  std::string architecture_;
  bool layers_differ_;
  nlohmann::json& config_;
  Status status_;
};

}  // namespace redline
