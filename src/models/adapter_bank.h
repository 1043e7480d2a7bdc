// LoRA adapters of one model, by name: factors from files, packed once for the model's sites and selected by request.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>

#include "graph/adapters.h"
#include "tensor/tensor_view.h"

namespace redline {

/// Low-rank factors of one matrix or convolution as the file stores them; 1x1 convolutions are matrices here.
struct AdapterMatrix {
  TensorView down;                  ///< [rank, in_features] or [rank, channels, kernel, kernel]; no data: a bias alone
  bool is_down_transposed = false;  ///< [in_features, rank], as GGUF files have it of embeddings
  TensorView up;                    ///< [out_features, rank]
  double scale = 1;                 ///< alpha / rank
  std::vector<float> bias;          ///< one element per row of `up`; scaled as the product is; empty: none
  /// DoRA (Liu et al. 2024, arXiv:2402.09353): norms of the rows, or of the input channels, that the weight has with
  /// the adapter: W becomes magnitude V / norm(V), V = W + scale up down. Empty: V itself.
  std::vector<float> magnitudes;
  bool has_column_magnitudes = false;
  int64_t rank() const { return up.shape[1]; }
  /// The rank of the factors that are applied: of a DoRA those of the whole difference of the weight.
  int64_t applied_rank() const;
  /// Row n of the product belongs to row up_row(n) of `up`; unset: row n.
  std::function<int64_t(int64_t)> up_row;
};

/// The matrices of one network, by the module's name in the file, without its prefix.
using AdapterMatrices = std::map<std::string, AdapterMatrix>;

/// A name under which files have the factors of a site.
struct AdapterName {
  std::string module;
  /// First row of a module that is part of a fused matrix in such files.
  std::optional<int64_t> first_row = {};
  /// Its rows are in the order of the checkpoint's weight (AdapterSite::source_row), not of the op's output.
  bool in_weight_order = false;
  /// Its rows begin with the second half of the site's.
  bool swaps_halves = false;
};
/// The names of a site, in order of preference.
using AdapterNames = std::function<std::vector<AdapterName>(const AdapterSite&)>;
/// The weight of a site before any adapter, row-major [out_features, in_features], in the order of the op's outputs and
/// of its x; not_found: it cannot be read.
using BaseWeights = std::function<Result<std::vector<float>>(const AdapterSite&)>;

/// Adapters by name with the weights at which a request uses them.
using NamedWeights = std::span<const std::pair<std::string, double>>;

/// The adapters that are loaded for the sites of one model, in one or several graphs. Not thread-safe.
class AdapterBank {
 public:
  AdapterBank() = default;
  AdapterBank(AdapterSites sites, AdapterNames names) : sites_(std::move(sites)), names_(std::move(names)) {}

  /// Files may have factors of this module, which the network does not compute: they have no effect.
  void ignore(std::string module) { idle_.insert(std::move(module)); }
  /// Where load() reads the weights that a DoRA starts from.
  void set_base(BaseWeights base) { base_ = std::move(base); }
  /// Call it when the programs are compiled, which chooses the types of packed factors. `plain`: keeps float32 copies
  /// for the interpreter.
  /// invalid_argument: a module that the model does not have (the message names the first and counts the others),
  /// shapes that differ, a rank above that of the sites, or a name that is in use. unsupported: a DoRA where the
  /// weights cannot be read again, or whose magnitudes span several weights.
  Status load(const std::string& name, const AdapterMatrices& matrices, bool plain);
  /// The same in two parts, of which the first takes long and changes nothing. add() in place of one that has the name,
  /// if it may; else that is an error.
  Result<std::shared_ptr<const Adapter>> make_adapter(const std::string& name, const AdapterMatrices& matrices,
                                                      bool plain) const;
  Status add(const std::string& name, std::shared_ptr<const Adapter> adapter, bool may_replace);
  /// Steps in progress keep the adapters that they use. False: no such name.
  bool unload(const std::string& name) { return adapters_.erase(name) > 0; }
  bool has(const std::string& name) const { return adapters_.contains(name); }

  /// For AdapterSegment::adapters.
  /// not_found: no such name. invalid_argument: their ranks together exceed that of the sites.
  Result<std::vector<WeightedAdapter>> select(NamedWeights weights) const;

 private:
  AdapterSites sites_;
  AdapterNames names_;
  BaseWeights base_;
  std::set<std::string> idle_;
  std::map<std::string, std::shared_ptr<const Adapter>> adapters_;
};

}  // namespace redline
