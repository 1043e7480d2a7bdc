#include "diffusion/base_weights.h"

#include <optional>

#include "models/image/image_registry.h"

namespace redline {
namespace {

/// Returns a weight of the checkpoint, with its rows in the order of the site's op.
Result<std::vector<float>> base_weight(const Checkpoint& checkpoint, const AdapterSite& site) {
  // names of the tensor, and the first row of the site in it
  std::vector<std::pair<std::string, int64_t>> names = {{site.weight, 0}};
  names.emplace_back("text_model." + site.weight, 0);
  std::string module = site.weight;
  if (module.ends_with(".weight")) module.resize(module.size() - 7);
  for (const StoredModule& stored : find_stored_modules(module))
    names.emplace_back(stored.name + ".weight", stored.first * site.out_features / stored.count);
  for (const auto& [name, first] : names) {
    const auto at = checkpoint.tensors.find(name);
    if (at == checkpoint.tensors.end()) continue;
    const WeightSource& source = at->second;
    const int64_t rows = source.view.shape.empty() ? 0 : source.view.shape[0];
    if (rows < first + site.out_features || source.view.num_elements() != rows * site.in_features) continue;
    std::vector<float> values(static_cast<size_t>(site.out_features * site.in_features)),
        row(static_cast<size_t>(site.in_features));
    const auto stride = source.view.bytes() / rows;
    source.need_all();
    for (int64_t n = 0; n < site.out_features; ++n) {
      const int64_t from = first + (site.source_row ? site.source_row(n) : n);
      unpack_row(source.view.dtype, static_cast<const uint8_t*>(source.view.data) + from * stride, row.data(),
                 site.in_features);
      for (int64_t k = 0; k < site.in_features; ++k)
        values[static_cast<size_t>(n * site.in_features + (site.columns ? (*site.columns)[static_cast<size_t>(k)]
                                                                        : k))] = row[static_cast<size_t>(k)];
    }
    return values;
  }
  return not_found("{}: no tensor {} of [{}, {}]", checkpoint.path, site.weight, site.out_features, site.in_features);
}

}  // namespace

BaseWeights base_weights(std::function<Result<Checkpoint>()> open) {
  return [open = std::move(open), checkpoint = std::make_shared<std::optional<Checkpoint>>()](
             const AdapterSite& site) -> Result<std::vector<float>> {
    if (!*checkpoint) {
      REDLINE_ASSIGN(*checkpoint, open());
    }
    return base_weight(**checkpoint, site);
  };
}

}  // namespace redline
