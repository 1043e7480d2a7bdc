#include "diffusion/pipeline_adapters.h"

#include <algorithm>

namespace redline {

Status PipelineAdapters::load(const std::string& name, const AdapterFile& file, bool plain) {
  for (const auto& part : file.encoders) {
    const std::string& component = part.first;
    const auto is_its = [&](const Bank& b) { return b.component == component || b.also == component; };
    if (std::none_of(banks_.begin(), banks_.end(), is_its))
      return invalid_argument(
          "adapter \"{}\" has a part for {}, which this pipeline does not have: is it a LoRA of this model?", name,
          component);
  }
  static const AdapterMatrices none;
  for (size_t i = 0; i < banks_.size(); ++i) {
    const Bank& b = banks_[i];
    const AdapterMatrices* matrices = b.component.empty() ? &file.denoiser : &none;
    for (const std::string& component : {b.also, b.component})
      if (const auto at = file.encoders.find(component); at != file.encoders.end()) matrices = &at->second;
    Status loaded = b.bank->load(name, *matrices, plain);
    if (loaded.ok()) continue;
    for (size_t before = 0; before < i; ++before) banks_[before].bank->unload(name);
    return b.component.empty() ? loaded : loaded.within(b.component);
  }
  return {};
}

Status PipelineAdapters::set(std::span<const std::pair<std::string, double>> adapters) {
  for (const Bank& b : banks_) REDLINE_TRY(b.bank->check(adapters));
  for (const Bank& b : banks_) REDLINE_TRY(b.bank->set(adapters));
  return {};
}

}  // namespace redline
