// Low-rank adapters (LoRA: Hu et al. 2021, arXiv:2106.09685). A site is an epilogue of a linear or conv2d, so passes
// fuse ops with sites like any others. Every step names the adapters of its rows by segments: requests in one batch may
// use different adapters, several, or none (Punica: Chen et al. 2023, arXiv:2310.18547). Nothing is recompiled, and
// weights of any type stay as they are.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace redline {

/// A place for adapters: the product of an op with one matrix or convolution kernel, or rows of a table.
struct AdapterSite {
  size_t index = 0;                            ///< index of this site's factors in Adapter::factors
  std::string op;                              ///< name of the op, before passes
  std::string weight;                          ///< name of the weight
  int64_t out_features = 0, in_features = 0;   ///< in_features of a convolution: channels * kernel * kernel
  int64_t kernel = 1;                          ///< kernel size of a convolution; 1 for a matrix
  bool is_lookup = false;                      ///< the op is an embedding; in_features is then the number of table rows
  Dim rows;                                    ///< rows of the op's output
  Symbol unit = Symbol::kTokens;               ///< unit in which segments for this site count rows
  std::function<int64_t(int64_t)> source_row;  ///< row order of the weight (WeightSource)
  std::shared_ptr<const std::vector<int32_t>> columns;   ///< column order of the weight (WeightSource)
  int64_t max_rank = 0;                                  ///< upper limit of the sum of ranks of a row's adapters
  DType down_type = DType::kF32, up_type = DType::kF32;  ///< types of packed factors; set when the program is compiled

  std::vector<int64_t> down_shape(int64_t rank) const {
    if (kernel == 1) return {rank, in_features};
    return {rank, in_features / (kernel * kernel), kernel, kernel};
  }
};
using AdapterSites = std::vector<std::shared_ptr<AdapterSite>>;

/// One adapter at one site: y += scale * ((x down^T) up^T + bias). For a conv2d, `down` has the op's kernel, stride and
/// padding, and `up` is a 1x1 convolution. For a lookup, x down^T is a row of down^T, which is stored as such:
/// [in_features, rank] in row-major float32, in `down` and `plain_down`.
struct AdapterFactors {
  int64_t rank = 0;            ///< 0: the adapter does not change this site
  const void* down = nullptr;  ///< AdapterSite::down_shape packed as its down_type (tensor/packed_weight.h)
  const void* up = nullptr;    ///< [out_features, rank] packed as its up_type; kI8: tensor/lora_up.h
  float scale = 1;
  /// `down` and `up` as row-major float32, for the interpreter.
  const float* plain_down = nullptr;
  const float* plain_up = nullptr;
  const float* bias = nullptr;  ///< [out_features], padded to whole row panels; nullptr: none
};

/// An adapter for the sites of one model. `storage` keeps the memory of the factors alive.
struct Adapter {
  std::vector<AdapterFactors> factors;  ///< factors at each site; the index is AdapterSite::index
  uint64_t identity = 0;                ///< a hash of the factors; 0: unknown
  std::shared_ptr<const void> storage;
};

/// An adapter and the factor that a request applies it with.
struct WeightedAdapter {
  std::shared_ptr<const Adapter> adapter;
  float weight = 1;
};

/// The adapters of rows [row_begin, row_end) of a step, which are added up. Rows count `unit`: tokens or logit rows of
/// a language model, items of a batch of images; they may extend past the end of the step. Segments of one unit do not
/// overlap; rows in no segment have no adapter. At every site the ranks of a segment's adapters sum to at most
/// max_rank.
struct AdapterSegment {
  Symbol unit = Symbol::kTokens;
  int64_t row_begin = 0, row_end = 0;
  std::span<const WeightedAdapter> adapters;
};

/// Rows [begin, end) of a site's output that share their adapters.
struct AdaptedRows {
  int64_t begin = 0, end = 0;
  int64_t segment_rows = 0;  ///< rows of the whole segment in this step
  std::span<const WeightedAdapter> adapters;
};

/// Returns the adapter's factors at a site, or nullptr if it has none there.
inline const AdapterFactors* factors_at(const WeightedAdapter& adapter, const AdapterSite& site) {
  const std::vector<AdapterFactors>& factors = adapter.adapter->factors;
  return site.index < factors.size() && factors[site.index].rank > 0 ? &factors[site.index] : nullptr;
}

/// Calls body(AdaptedRows) for the part of each segment that lies in rows [begin, end) of the site's output and has
/// factors at the site.
template <class Body>
void for_adapted_rows(std::span<const AdapterSegment> segments, const AdapterSite& site, const SymbolValues& sizes,
                      int64_t begin, int64_t end, const Body& body) {
  const int64_t units = sizes[site.unit];
  if (segments.empty() || units == 0) return;
  const int64_t unit_rows = site.rows.eval(sizes) / units;
  for (const AdapterSegment& segment : segments) {
    if (segment.unit != site.unit) continue;
    const int64_t first = std::min(segment.row_begin, units) * unit_rows;
    const int64_t last = std::min(segment.row_end, units) * unit_rows;
    const AdaptedRows rows = {std::max(begin, first), std::min(end, last), last - first, segment.adapters};
    if (rows.begin >= rows.end) continue;
    if (std::any_of(rows.adapters.begin(), rows.adapters.end(),
                    [&](const WeightedAdapter& a) { return factors_at(a, site) != nullptr; }))
      body(rows);
  }
}

}  // namespace redline
