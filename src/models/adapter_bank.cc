#include "models/adapter_bank.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/aligned_buffer.h"
#include "base/hash.h"
#include "tensor/lora_up.h"
#include "tensor/packed_weight.h"

namespace redline {
namespace {

/// The factors of one site.
struct Packed {
  std::vector<uint8_t> down, up;
  std::vector<float> plain_down, plain_up;
};

/// The factors of one adapter. They are in one block on huge pages, because every step reads all of them, in the order
/// of the sites.
struct Storage {
  AlignedBuffer packed;
  std::map<size_t, Packed> sites;
};

/// Moves packed factors into one piece of memory.
Status join(Storage& storage, std::vector<AdapterFactors>& factors) {
  constexpr size_t kLine = 64;
  const auto padded = [](size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; };
  size_t total = 0;
  for (const auto& [site, p] : storage.sites) total += padded(p.down.size()) + padded(p.up.size());
  REDLINE_ASSIGN(storage.packed, AlignedBuffer::make(static_cast<int64_t>(total)));
  auto* at = static_cast<uint8_t*>(storage.packed.data());
  const auto move = [&](std::vector<uint8_t>& bytes) {
    uint8_t* const begin = at;
    std::copy(bytes.begin(), bytes.end(), begin);
    at += padded(bytes.size());
    bytes = {};
    return begin;
  };
  for (auto& [site, p] : storage.sites) {
    if (!p.down.empty()) factors[site].down = move(p.down);
    factors[site].up = move(p.up);
  }
  return {};
}

std::vector<float> values_of(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.num_elements()));
  unpack_row(view.dtype, view.data, values.data(), view.num_elements());
  return values;
}

/// Packs row-major values of `shape`, two or four axes, as `type`.
std::vector<uint8_t> pack(const std::vector<float>& values, const std::vector<int64_t>& shape, DType type) {
  const auto [rows, cols] = packed_matrix({type, shape, nullptr});
  const int64_t bytes = row_bytes(type, cols);
  std::vector<uint8_t> rounded(static_cast<size_t>(rows * bytes));
  for (int64_t r = 0; r < rows; ++r) round_row(type, values.data() + r * cols, cols, rounded.data() + r * bytes);
  std::vector<uint8_t> packed(static_cast<size_t>(packed_bytes(type, rows, cols)));
  pack_row_panels({type, shape, rounded.data()}, 0, (rows + kRowPanelRows - 1) / kRowPanelRows, packed.data());
  return packed;
}

/// Packs row-major values of an up matrix [rows, rank].
std::vector<uint8_t> pack_up(const std::vector<float>& values, int64_t rows, int64_t rank, DType type) {
  if (type != DType::kI8) return pack(values, {rows, rank}, type);
  std::vector<uint8_t> packed(static_cast<size_t>(lora_up_bytes(rows, rank)));
  pack_lora_up(values.data(), rows, rank, packed.data());
  return packed;
}

/// Returns the transpose of a row-major matrix of `rows` rows.
std::vector<float> transposed(const std::vector<float>& values, int64_t rows) {
  std::vector<float> result(values.size());
  const int64_t cols = std::ssize(values) / std::max<int64_t>(rows, 1);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      result[static_cast<size_t>(c * rows + r)] = values[static_cast<size_t>(r * cols + c)];
  return result;
}

/// Returns the rows of `matrix.up` that belong to the site, in the order of its outputs.
std::vector<float> up_values(const AdapterMatrix& matrix, const AdapterSite& site, const AdapterName& name) {
  const std::vector<float> stored = values_of(matrix.up);
  const int64_t rank = matrix.up.shape[1];
  std::vector<float> up;
  up.reserve(static_cast<size_t>(site.out_features * rank));
  for (int64_t n = 0; n < site.out_features; ++n) {
    int64_t from = name.in_weight_order && site.source_row ? site.source_row(n) : n;
    if (name.swaps_halves) from = (from + site.out_features / 2) % site.out_features;
    if (matrix.up_row) from = matrix.up_row(from);
    const auto row = stored.begin() + (name.first_row.value_or(0) + from) * rank;
    up.insert(up.end(), row, row + rank);
  }
  return up;
}

/// Returns the columns of a down matrix in the order in which the op reads x.
std::vector<float> in_order_of(const std::vector<int32_t>& columns, const std::vector<float>& down) {
  std::vector<float> result;
  result.reserve(down.size());
  for (auto row = down.begin(); row != down.end(); row += std::ssize(columns))
    for (const int32_t column : columns) result.push_back(row[column]);
  return result;
}

}  // namespace

Status AdapterBank::load(const std::string& name, const AdapterMatrices& matrices, bool plain) {
  REDLINE_ASSIGN(std::shared_ptr<const Adapter> adapter, make_adapter(name, matrices, plain));
  return add(name, std::move(adapter), false);
}

Status AdapterBank::add(const std::string& name, std::shared_ptr<const Adapter> adapter, bool may_replace) {
  if (!may_replace && has(name)) return invalid_argument("there is an adapter \"{}\" already", name);
  adapters_[name] = std::move(adapter);
  return {};
}

Result<std::shared_ptr<const Adapter>> AdapterBank::make_adapter(const std::string& name,
                                                                 const AdapterMatrices& matrices, bool plain) const {
  auto storage = std::make_shared<Storage>();
  auto adapter = std::make_shared<Adapter>();
  std::set<std::string> used = idle_;
  for (const std::shared_ptr<AdapterSite>& site : sites_) {
    auto at = matrices.end();
    AdapterName found;
    for (const AdapterName& known : names_(*site)) {
      if (at = matrices.find(known.module); at == matrices.end()) continue;
      found = known;
      break;
    }
    if (at == matrices.end()) continue;
    used.insert(at->first);
    const auto& [module, matrix] = *at;
    const int64_t rank = matrix.rank();
    const bool fits = found.first_row ? matrix.up.shape[0] >= *found.first_row + site->out_features
                                      : matrix.up.shape[0] == site->out_features;
    std::vector<int64_t> down_shape = site->down_shape(rank);
    if (matrix.is_down_transposed) std::reverse(down_shape.begin(), down_shape.end());
    // Factors of a convolution that were computed are matrices of its flattened kernels.
    const bool is_flat = site->kernel > 1 && matrix.down.shape == std::vector<int64_t>{rank, site->in_features};
    if ((matrix.down.shape != down_shape && !is_flat) || !fits)
      return invalid_argument("adapter \"{}\": {} is [{}, {}] x [{}], the network has room for [{}, {}] x [{}]", name,
                              module, matrix.up.shape[0], rank, fmt::join(matrix.down.shape, ", "), site->out_features,
                              rank, fmt::join(down_shape, ", "));
    if (rank > site->max_rank)
      return invalid_argument("adapter \"{}\": {} has rank {}, the engine was opened for {}; raise max_adapter_rank",
                              name, module, rank, site->max_rank);
    Packed& p = storage->sites[site->index];
    std::vector<float> down = values_of(matrix.down), up = up_values(matrix, *site, found);
    if (site->columns) down = in_order_of(*site->columns, down);
    if (site->is_lookup && !matrix.is_down_transposed) down = transposed(down, rank);
    if (!site->is_lookup) p.down = pack(down, down_shape, site->down_type);
    p.up = pack_up(up, site->out_features, rank, site->up_type);
    if (adapter->factors.size() <= site->index) adapter->factors.resize(site->index + 1);
    adapter->identity = hash_word(adapter->identity, site->index);
    adapter->identity = hash_bytes(adapter->identity, &matrix.scale, sizeof matrix.scale);
    for (const std::vector<float>* values : {&down, &up})
      adapter->identity = hash_bytes(adapter->identity, values->data(), values->size() * sizeof(float));
    adapter->factors[site->index] = {rank,
                                     site->is_lookup ? down.data() : nullptr,
                                     nullptr,
                                     static_cast<float>(matrix.scale),
                                     plain ? down.data() : nullptr,
                                     plain ? up.data() : nullptr};
    // The views stay valid, because moving a vector keeps its memory.
    if (plain || site->is_lookup) p.plain_down = std::move(down);
    if (plain) p.plain_up = std::move(up);
  }
  const auto unknown =
      std::count_if(matrices.begin(), matrices.end(), [&](const auto& entry) { return !used.contains(entry.first); });
  for (const auto& [module, matrix] : matrices)
    if (!used.contains(module))
      return invalid_argument("adapter \"{}\": the network has no {}{}; is it a LoRA of this model?", name, module,
                              unknown > 1 ? fmt::format(" (nor {} others)", unknown - 1) : "");
  REDLINE_TRY(join(*storage, adapter->factors));
  adapter->storage = std::move(storage);
  return std::shared_ptr<const Adapter>(std::move(adapter));
}

Result<std::vector<WeightedAdapter>> AdapterBank::select(NamedWeights weights) const {
  std::vector<WeightedAdapter> selected;
  for (const auto& [name, weight] : weights) {
    const auto at = adapters_.find(name);
    if (at == adapters_.end()) return not_found("there is no adapter \"{}\"", name);
    selected.push_back({at->second, static_cast<float>(weight)});
  }
  for (const std::shared_ptr<AdapterSite>& site : sites_) {
    int64_t rank = 0;
    for (const WeightedAdapter& each : selected)
      if (const AdapterFactors* factors = factors_at(each, *site)) rank += factors->rank;
    if (rank > site->max_rank)
      return invalid_argument("the adapters have rank {} together at {}, the engine was opened for {}", rank,
                              site->weight, site->max_rank);
  }
  return selected;
}

}  // namespace redline
