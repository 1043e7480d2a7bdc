// The LoRA adapters of an engine, which requests select by name.
#pragma once

#include <mutex>

#include "models/files/text_adapter.h"
#include "redline/text.h"

namespace redline {

/// The loaded adapters of a text model, by name. Thread-safe.
class TextAdapters {
 public:
  /// Adds adapter sites to the linear ops of `model`, before it is compiled. max_rank 0: adds none. `plain`: for the
  /// interpreter. invalid_argument: max_rank is out of range.
  static Result<std::unique_ptr<TextAdapters>> make(LanguageModel& model, const ModelFamily& family, int64_t max_rank,
                                                    bool plain);
  /// These implement TextEngine::load_adapter, replace_adapter and unload_adapter.
  Status load(const std::string& name, const std::string& path) { return add(name, path, false); }
  Status replace(const std::string& name, const std::string& path) { return add(name, path, true); }
  Status unload(const std::string& name);
  /// Returns the adapters for StepEntry::adapters. Errors: those of TextEngine::new_sequence.
  Result<std::vector<WeightedAdapter>> select(const AdapterWeights& weights) const;

 private:
  TextAdapters(const ModelFamily& family, const DecoderConfig& config) : family_(family), config_(config) {}
  Status add(const std::string& name, const std::string& path, bool may_replace);
  const ModelFamily& family_;
  DecoderConfig config_;
  int64_t max_rank_ = 0;
  bool plain_ = false;
  AdapterBank bank_;
  mutable std::mutex mutex_;  // guards the names of bank_
};

}  // namespace redline
