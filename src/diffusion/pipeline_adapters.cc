#include "diffusion/pipeline_adapters.h"

#include <algorithm>

namespace redline {

Status PipelineAdapters::load(const std::string& name, const AdapterFile& file, bool plain) {
  std::vector<const AdapterMatrices*> shares(banks_.size());
  for (const auto& [component, matrices] : file.networks) {
    size_t i = 0;
    while (i < banks_.size() && banks_[i].component != component && (component.empty() || banks_[i].also != component))
      ++i;
    if (i == banks_.size())
      return invalid_argument(
          "adapter \"{}\" has a part for {}, which this pipeline does not have: is it a LoRA of this model?", name,
          component.empty() ? "the denoiser" : component);
    shares[i] = &matrices;
  }
  static const AdapterMatrices none;
  for (size_t i = 0; i < banks_.size(); ++i) {
    const Bank& b = banks_[i];
    Status loaded = b.bank->load(name, shares[i] ? *shares[i] : none, plain);
    if (loaded.ok()) continue;
    for (size_t before = 0; before < i; ++before) banks_[before].bank->unload(name);
    return b.component.empty() ? loaded : loaded.within(b.component);
  }
  return {};
}

Status PipelineAdapters::set(NamedWeights given) {
  // An adapter that is given twice has the sum of its weights, as in a chain of LoRA loaders.
  std::vector<std::pair<std::string, double>> adapters;
  for (const auto& [name, weight] : given) {
    const auto known = std::find_if(adapters.begin(), adapters.end(), [&](const auto& a) { return a.first == name; });
    if (known == adapters.end()) adapters.emplace_back(name, weight);
    else known->second += weight;
  }
  for (const Bank& b : banks_) REDLINE_TRY(b.bank->select(adapters).status());
  for (const Bank& b : banks_) REDLINE_TRY(b.bank->set(adapters));
  return {};
}

}  // namespace redline
