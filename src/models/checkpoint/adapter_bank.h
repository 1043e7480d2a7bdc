// The LoRA adapters of one model, by name. Factors come from files, are packed once for the model's sites, and are
// selected by each request.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>

#include "graph/adapters.h"
#include "tensor/tensor_view.h"

namespace redline {

/// Low-rank factors of one matrix or convolution as a file stores them. 1x1 convolutions are matrices here.
struct AdapterMatrix {
  TensorView down;                  ///< [rank, in_features] or [rank, channels, kernel, kernel]; no data: a bias alone
  bool is_down_transposed = false;  ///< `down` is [in_features, rank], as in GGUF files for embeddings
  TensorView up;                    ///< [out_features, rank]
  double scale = 1;                 ///< alpha / rank
  std::vector<float> bias;          ///< one element per row of `up`; scaled as the product is; empty: none
  /// DoRA (Liu et al. 2024, arXiv:2402.09353): norms of the rows, or of the input channels, that the weight has with
  /// the adapter: W becomes magnitude V / norm(V), V = W + scale up down. Empty: V itself.
  std::vector<float> magnitudes;
  bool has_column_magnitudes = false;
  int64_t rank() const { return up.shape[1]; }
  /// Returns the rank of the factors that are applied. For a DoRA they express the whole difference of the weight.
  int64_t applied_rank() const;
  /// Maps row n of the product to row up_row(n) of `up`; unset: to row n.
  std::function<int64_t(int64_t)> up_row;
};

/// The matrices of one network, by the module's name in the file without the network's prefix.
using AdapterMatrices = std::map<std::string, AdapterMatrix>;

/// A name under which files may store the factors of a site.
struct AdapterName {
  std::string module;
  /// First row of the site within a fused matrix of this name; unset: the matrix is not fused.
  std::optional<int64_t> first_row = {};
  /// The rows are in the order of the checkpoint's weight (AdapterSite::source_row), not of the op's output.
  bool in_weight_order = false;
  /// The rows begin with the second half of the site's rows.
  bool swaps_halves = false;
};
/// Returns the names of a site, in order of preference.
using AdapterNames = std::function<std::vector<AdapterName>(const AdapterSite&)>;
/// The weight of a site before any adapter, row-major [out_features, in_features], in the order of the op's outputs and
/// of its x; not_found: it cannot be read.
using BaseWeights = std::function<Result<std::vector<float>>(const AdapterSite&)>;

/// Names of adapters, each with its weight in a request.
using NamedWeights = std::span<const std::pair<std::string, double>>;

/// The adapters loaded for the sites of one model, which may have several graphs. Not thread-safe.
class AdapterBank {
 public:
  AdapterBank() = default;
  AdapterBank(AdapterSites sites, AdapterNames names) : sites_(std::move(sites)), names_(std::move(names)) {}

  /// Ignores factors of a module that files may have but the network does not compute.
  void ignore(std::string module) { idle_.insert(std::move(module)); }
  /// Sets the reader of the weights that a DoRA starts from. load() uses it.
  void set_base(BaseWeights base) { base_ = std::move(base); }
  /// Loads an adapter. Called after the programs are compiled, because compiling chooses the types of packed factors.
  /// `plain`: keeps float32 copies for the interpreter.
  /// invalid_argument: a module that the model does not have (the message names the first and counts the others),
  /// shapes that differ, a rank above that of the sites, or a name that is in use. unsupported: a DoRA where the
  /// weights cannot be read again, or whose magnitudes span several weights.
  Status load(const std::string& name, const AdapterMatrices& matrices, bool plain);
  /// load() in two parts: make_adapter() takes long and does not change the bank; add() is fast. `may_replace`: add()
  /// replaces an adapter of the same name, which is an error otherwise.
  Result<std::shared_ptr<const Adapter>> make_adapter(const std::string& name, const AdapterMatrices& matrices,
                                                      bool plain) const;
  Status add(const std::string& name, std::shared_ptr<const Adapter> adapter, bool may_replace);
  /// Removes an adapter. Steps in progress keep the adapters that they use. Returns false if there is no such name.
  bool unload(const std::string& name) { return adapters_.erase(name) > 0; }
  bool has(const std::string& name) const { return adapters_.contains(name); }

  /// Returns the adapters for AdapterSegment::adapters.
  /// not_found: no such name. invalid_argument: the ranks together exceed that of the sites.
  Result<std::vector<WeightedAdapter>> select(NamedWeights weights) const;

 private:
  AdapterSites sites_;
  AdapterNames names_;
  BaseWeights base_;
  std::set<std::string> idle_;
  std::map<std::string, std::shared_ptr<const Adapter>> adapters_;
};

}  // namespace redline
