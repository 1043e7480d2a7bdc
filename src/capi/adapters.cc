#include <algorithm>

#include "capi/handles.h"

namespace redline::capi {

Result<std::unique_ptr<OpenedAdapters>> OpenedAdapters::read(const redline_adapter* adapters, size_t count) {
  auto opened = std::make_unique<OpenedAdapters>();
  if (count == 0) return opened;
  REDLINE_TRY(required(adapters, "adapters"));
  for (size_t i = 0; i < count; ++i) {
    if (adapters[i].path == nullptr) return invalid_argument("adapters[{}].path is NULL", i);
    std::string name = adapters[i].name != nullptr ? adapters[i].name : fmt::format("adapter{}", i);
    if (std::find(opened->names.begin(), opened->names.end(), name) != opened->names.end())
      return invalid_argument("adapters[{}]: the name \"{}\" occurs twice", i, name);
    opened->names.push_back(std::move(name));
    opened->paths.emplace_back(adapters[i].path);
    opened->values.push_back(adapters[i].weight);
  }
  opened->weights.reserve(count);
  for (size_t i = 0; i < count; ++i) opened->weights.push_back({opened->names[i].c_str(), opened->values[i]});
  return opened;
}

AdapterWeights OpenedAdapters::pairs() const {
  AdapterWeights pairs;
  pairs.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) pairs.emplace_back(names[i], values[i]);
  return pairs;
}

Result<int64_t> OpenedAdapters::rank(Result<int64_t> (*rank_of)(const std::string&)) const {
  int64_t sum = 0;
  for (const std::string& path : paths) {
    REDLINE_ASSIGN(const int64_t rank, rank_of(path));
    sum += rank;
  }
  return sum;
}

Result<AdapterWeights> adapter_weights(const redline_adapter_weight* adapters, size_t count) {
  AdapterWeights pairs;
  if (count == 0) return pairs;
  REDLINE_TRY(required(adapters, "adapters"));
  pairs.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (adapters[i].name == nullptr) return invalid_argument("adapters[{}].name is NULL", i);
    pairs.emplace_back(adapters[i].name, adapters[i].weight);
  }
  return pairs;
}

}  // namespace redline::capi
