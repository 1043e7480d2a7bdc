// The data that an op's reference works on: dense float64 tensors and the history of keys and values.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "graph/adapters.h"
#include "graph/graph.h"

namespace redline {

/// Row-major, float64; integers are represented exactly.
struct HostTensor {
  std::vector<int64_t> shape;
  std::vector<double> data;

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  /// Number of elements per index of the first axis.
  int64_t cols() const {
    int64_t n = 1;
    for (size_t i = 1; i < shape.size(); ++i) n *= shape[i];
    return n;
  }
  double* row(int64_t r) { return data.data() + r * cols(); }
  const double* row(int64_t r) const { return data.data() + r * cols(); }
};

/// Keys and values of one sequence, one pair of tables per layer: [position][kv heads * head_dim].
struct ReferenceCache {
  struct Layer {
    std::vector<std::vector<double>> k, v;
  };
  std::map<int64_t, Layer> layers;
  void truncate(int64_t length) {
    for (auto& [id, layer] : layers) {
      layer.k.resize(std::min<size_t>(layer.k.size(), static_cast<size_t>(length)));
      layer.v.resize(layer.k.size());
    }
  }
};

class ReferenceContext {
 public:
  ReferenceContext(const Op& op, std::vector<HostTensor>& values, ReferenceCache& cache, const SymbolValues& sizes,
                   std::span<const AdapterSegment> adapters = {})
      : op_(op), values_(values), cache_(cache), sizes_(sizes), adapters_(adapters) {}
  const HostTensor& in(size_t i) const { return values_[static_cast<size_t>(op_.inputs[i])]; }
  size_t num_inputs() const { return op_.inputs.size(); }
  /// Zero-initialized, in its final shape.
  HostTensor& out(size_t i = 0) { return values_[static_cast<size_t>(op_.outputs[i])]; }
  template <class T>
  const T& attrs() const {
    return *std::any_cast<T>(&op_.attrs);
  }
  ReferenceCache& cache() { return cache_; }
  /// Symbol values of this step, for sizes that the shapes do not give.
  const SymbolValues& sizes() const { return sizes_; }
  std::span<const AdapterSegment> adapters() const { return adapters_; }

 private:
  const Op& op_;
  std::vector<HostTensor>& values_;
  ReferenceCache& cache_;
  const SymbolValues& sizes_;
  std::span<const AdapterSegment> adapters_;
};

/// Adds the step's adapters at a site to y, the product of x with rows [first_feature, first_feature + y.cols()) of the
/// site's matrix. nullptr: no site.
void add_adapters_reference(const ReferenceContext& c, const AdapterSite* site, const HostTensor& x, HostTensor& y,
                            int64_t first_feature = 0);

}  // namespace redline
