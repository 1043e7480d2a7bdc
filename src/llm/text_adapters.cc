#include "llm/text_adapters.h"

namespace redline {

Result<std::unique_ptr<TextAdapters>> TextAdapters::make(LanguageModel& model, const ModelFamily& family,
                                                         int64_t max_rank, bool plain) {
  constexpr int64_t kMaxRank = 4096;
  if (max_rank < 0 || max_rank > kMaxRank)
    return invalid_argument("max_adapter_rank {} is outside [0, {}]", max_rank, kMaxRank);
  std::unique_ptr<TextAdapters> adapters(new TextAdapters(family, model.config));
  adapters->max_rank_ = max_rank;
  adapters->plain_ = plain;
  if (max_rank > 0) adapters->bank_ = make_text_adapter_bank(model.graph, max_rank);
  return adapters;
}

Status TextAdapters::add(const std::string& name, const std::string& path, bool may_replace) {
  if (max_rank_ == 0) return invalid_argument("the engine was opened without room for adapters; set max_adapter_rank");
  REDLINE_ASSIGN(const TextAdapterFile file, TextAdapterFile::open(path));
  REDLINE_ASSIGN(const AdapterMatrices matrices, file.for_model(family_, config_));
  // The mutex is not held, so requests continue meanwhile.
  REDLINE_ASSIGN(std::shared_ptr<const Adapter> adapter, bank_.make_adapter(name, matrices, plain_));
  std::lock_guard lock(mutex_);
  return bank_.add(name, std::move(adapter), may_replace);
}

Status TextAdapters::unload(const std::string& name) {
  std::lock_guard lock(mutex_);
  if (!bank_.unload(name)) return not_found("there is no adapter \"{}\"", name);
  return {};
}

Result<std::vector<WeightedAdapter>> TextAdapters::select(const AdapterWeights& weights) const {
  if (weights.empty()) return std::vector<WeightedAdapter>();
  std::lock_guard lock(mutex_);
  return bank_.select(weights);
}

Result<int64_t> text_adapter_rank(const std::string& path) {
  REDLINE_ASSIGN(const TextAdapterFile file, TextAdapterFile::open(path));
  return file.max_rank;
}

}  // namespace redline
