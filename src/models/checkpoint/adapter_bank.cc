#include "models/checkpoint/adapter_bank.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
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
  std::vector<float> plain_down, plain_up, bias;
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

/// Returns the rows of `stored` that belong to the site, in the order of its outputs. `stored` has a row of `cols`
/// elements for each row of the module's `up`.
std::vector<float> rows_of_site(const std::vector<float>& stored, int64_t cols, const AdapterMatrix& matrix,
                                const AdapterSite& site, const AdapterName& name) {
  std::vector<float> rows;
  rows.reserve(static_cast<size_t>(site.out_features * cols));
  for (int64_t n = 0; n < site.out_features; ++n) {
    int64_t from = name.in_weight_order && site.source_row ? site.source_row(n) : n;
    if (name.swaps_halves) from = (from + site.out_features / 2) % site.out_features;
    if (matrix.up_row) from = matrix.up_row(from);
    const auto row = stored.begin() + (name.first_row.value_or(0) + from) * cols;
    rows.insert(rows.end(), row, row + cols);
  }
  return rows;
}

/// Row-major factors of one site.
struct SiteFactors {
  int64_t rank = 0;
  std::vector<float> down, up;  ///< [rank, in_features], [out_features, rank]
  std::vector<float> bias;      ///< [out_features] or empty
  double scale = 1;
};

/// Sets the factors to a whole matrix [out_features, in_features] and an identity, whose product is this matrix.
void set_whole(SiteFactors& f, std::vector<float> matrix, int64_t out_features, int64_t in_features) {
  f.rank = std::min(out_features, in_features);
  std::vector<float> identity(static_cast<size_t>(f.rank * f.rank));
  for (int64_t i = 0; i < f.rank; ++i) identity[static_cast<size_t>(i * f.rank + i)] = 1;
  const bool is_wide = out_features <= in_features;
  f.down = is_wide ? matrix : identity;
  f.up = is_wide ? std::move(identity) : std::move(matrix);
}

/// Returns base + scale * up * down, computed in the memory of `base`.
std::vector<float> adapted_weight(std::vector<float> base, const SiteFactors& f, int64_t in_features) {
  for (size_t row = 0; row * static_cast<size_t>(in_features) < base.size(); ++row) {
    float* const to = base.data() + row * static_cast<size_t>(in_features);
    for (int64_t r = 0; r < f.rank; ++r) {
      const float factor =
          static_cast<float>(f.scale) * f.up[row * static_cast<size_t>(f.rank) + static_cast<size_t>(r)];
      const float* const down = f.down.data() + r * in_features;
      for (int64_t k = 0; k < in_features; ++k) to[k] += factor * down[k];
    }
  }
  return base;
}

/// Replaces the factors of a DoRA by those of its whole difference to `base`. `magnitudes`: one for each row of the
/// site, or, if is_by_column, one for each of its input channels.
void decompose(SiteFactors& f, const std::vector<float>& base, const std::vector<float>& magnitudes, bool is_by_column,
               const AdapterSite& site) {
  std::vector<float> weight = adapted_weight(base, f, site.in_features);
  const int64_t taps = site.kernel * site.kernel;
  const auto group_of = [&](int64_t row, int64_t k) { return static_cast<size_t>(is_by_column ? k / taps : row); };
  std::vector<double> squares(magnitudes.size());
  const auto for_all = [&](const auto& body) {
    for (int64_t row = 0; row < site.out_features; ++row)
      for (int64_t k = 0; k < site.in_features; ++k)
        body(static_cast<size_t>(row * site.in_features + k), group_of(row, k));
  };
  for_all([&](size_t i, size_t group) {
    squares[group] += static_cast<double>(weight[i]) * static_cast<double>(weight[i]);
  });
  std::vector<double> factors;
  for (size_t i = 0; i < squares.size(); ++i)
    factors.push_back(squares[i] > 0 ? static_cast<double>(magnitudes[i]) / std::sqrt(squares[i]) : 0);
  for_all([&](size_t i, size_t group) {
    weight[i] = static_cast<float>(static_cast<double>(weight[i]) * factors[group] - static_cast<double>(base[i]));
  });
  for (float& b : f.bias) b *= static_cast<float>(f.scale);
  set_whole(f, std::move(weight), site.out_features, site.in_features);
  f.scale = 1;
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

int64_t AdapterMatrix::applied_rank() const {
  if (down.data == nullptr) return 1;
  if (magnitudes.empty()) return rank();
  return std::min(up.shape[0], down.num_elements() / std::max<int64_t>(rank(), 1));
}

Status AdapterBank::load(const std::string& name, const AdapterMatrices& matrices, bool plain) {
  REDLINE_ASSIGN(std::shared_ptr<const Adapter> adapter, make_adapter(name, matrices, plain));
  return add(name, std::move(adapter), false);
}

Status AdapterBank::add(const std::string& name, std::shared_ptr<const Adapter> adapter, bool may_replace) {
  if (!may_replace && has(name)) return invalid_argument("there is an adapter \"{}\" already", name);
  adapters_[name] = std::move(adapter);
  return {};
}

namespace {

/// Replaces the factors of a DoRA by those of its whole difference to the weight of the model.
Status apply_magnitudes(const AdapterMatrix& matrix, const AdapterSite& site, const AdapterName& name,
                        const BaseWeights& base_of, SiteFactors& f) {
  if (!base_of || site.is_lookup)
    return unsupported("a DoRA needs the weights of the model, which cannot be read here; merge it into the model");
  if (matrix.has_column_magnitudes && matrix.up.shape[0] != site.out_features)
    return unsupported("a DoRA whose magnitudes span several weights of this model; merge it into the model");
  const auto wanted = static_cast<size_t>(matrix.has_column_magnitudes ? site.in_features / (site.kernel * site.kernel)
                                                                       : matrix.up.shape[0]);
  if (matrix.magnitudes.size() != wanted)
    return invalid_argument("a DoRA with {} magnitudes; the weight has {}", matrix.magnitudes.size(), wanted);
  REDLINE_ASSIGN(const std::vector<float> base, base_of(site));
  const std::vector<float> magnitudes =
      matrix.has_column_magnitudes ? matrix.magnitudes : rows_of_site(matrix.magnitudes, 1, matrix, site, name);
  decompose(f, base, magnitudes, matrix.has_column_magnitudes, site);
  return {};
}

}  // namespace

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
    const int64_t stored_rank = matrix.rank();
    const bool is_bias_alone = matrix.down.data == nullptr;
    const bool fits = found.first_row ? matrix.up.shape[0] >= *found.first_row + site->out_features
                                      : matrix.up.shape[0] == site->out_features;
    std::vector<int64_t> down_shape = site->down_shape(stored_rank);
    if (matrix.is_down_transposed) std::reverse(down_shape.begin(), down_shape.end());
    // Computed factors of a convolution are matrices of its flattened kernels.
    const bool is_flat = site->kernel > 1 && matrix.down.shape == std::vector<int64_t>{stored_rank, site->in_features};
    if ((matrix.down.shape != down_shape && !is_flat && !is_bias_alone) || !fits)
      return invalid_argument("adapter \"{}\": {} is [{}, {}] x [{}], the network has room for [{}, {}] x [{}]", name,
                              module, matrix.up.shape[0], stored_rank, fmt::join(matrix.down.shape, ", "),
                              site->out_features, stored_rank, fmt::join(down_shape, ", "));
    SiteFactors f = {.rank = stored_rank, .scale = matrix.scale};
    if (is_bias_alone) {
      // Factors of zeros carry it.
      f.rank = 1;
      f.down.resize(static_cast<size_t>(site->in_features));
      f.up.resize(static_cast<size_t>(site->out_features));
    } else {
      f.down = values_of(matrix.down);
      f.up = rows_of_site(values_of(matrix.up), stored_rank, matrix, *site, found);
    }
    if (!matrix.bias.empty()) f.bias = rows_of_site(matrix.bias, 1, matrix, *site, found);
    if (!matrix.magnitudes.empty())
      REDLINE_TRY(
          apply_magnitudes(matrix, *site, found, base_, f).within(fmt::format("adapter \"{}\": {}", name, module)));
    const int64_t rank = f.rank;
    if (rank > site->max_rank)
      return invalid_argument("adapter \"{}\": {} has rank {}, the engine was opened for {}; raise max_adapter_rank",
                              name, module, rank, site->max_rank);
    Packed& p = storage->sites[site->index];
    if (site->columns) f.down = in_order_of(*site->columns, f.down);
    if (site->is_lookup && !matrix.is_down_transposed) f.down = transposed(f.down, rank);
    if (!site->is_lookup) p.down = pack(f.down, site->down_shape(rank), site->down_type);
    p.up = pack_up(f.up, site->out_features, rank, site->up_type);
    if (adapter->factors.size() <= site->index) adapter->factors.resize(site->index + 1);
    adapter->identity = hash_word(adapter->identity, site->index);
    adapter->identity = hash_bytes(adapter->identity, &f.scale, sizeof f.scale);
    for (const std::vector<float>* values : {&f.down, &f.up, &f.bias})
      adapter->identity = hash_bytes(adapter->identity, values->data(), values->size() * sizeof(float));
    f.bias.resize(f.bias.empty()
                      ? 0
                      : static_cast<size_t>((site->out_features + kRowPanelRows - 1) / kRowPanelRows * kRowPanelRows));
    adapter->factors[site->index] = {rank,
                                     site->is_lookup ? f.down.data() : nullptr,
                                     nullptr,
                                     static_cast<float>(f.scale),
                                     plain ? f.down.data() : nullptr,
                                     plain ? f.up.data() : nullptr,
                                     f.bias.empty() ? nullptr : f.bias.data()};
    if (plain || site->is_lookup)
      p.plain_down = std::move(f.down);  // views stay valid: moving a vector keeps its memory
    if (plain) p.plain_up = std::move(f.up);
    p.bias = std::move(f.bias);
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
