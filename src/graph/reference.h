// The data that an op's reference works on: dense float64 tensors, and the state of the sequences of the step.
#pragma once

#include <algorithm>
#include <vector>

#include "graph/adapters.h"
#include "graph/graph.h"
#include "graph/state.h"
#include "graph/step.h"

namespace redline {

/// Row-major, float64; integers are represented exactly.
struct HostTensor {
  std::vector<int64_t> shape;
  std::vector<double> data;

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  /// Returns the number of elements per index of the first axis.
  int64_t cols() const {
    int64_t n = 1;
    for (size_t i = 1; i < shape.size(); ++i) n *= shape[i];
    return n;
  }
  double* row(int64_t r) { return data.data() + r * cols(); }
  const double* row(int64_t r) const { return data.data() + r * cols(); }
};

/// A state in float64 (StateStorage::kReference), as the sequences of a step see it.
class ReferenceState {
 public:
  ReferenceState(const StateAttrs& attrs, const KvPlace& place, const StateStep& step)
      : attrs_(attrs), place_(place), step_(step) {}

  const StateAttrs& attrs() const { return attrs_; }
  /// Returns keys or values of one head at a position of a sequence of the step, [head_dim].
  double* key(size_t sequence, int64_t position, int64_t head) const {
    return at(place_.keys, sequence, position, head);
  }
  double* value(size_t sequence, int64_t position, int64_t head) const {
    return at(place_.values, sequence, position, head);
  }
  /// Returns the number of positions of a sequence of the step, whose rows are `rows`.
  int64_t length(size_t sequence, const SequenceRows& rows) const { return step_.length(sequence, rows); }
  /// kRecurrent: before() is the state that the step reads, after() the one that it writes; both have [elements].
  const double* before(size_t sequence) const { return recurrent(step_.pages[sequence][0]); }
  double* after(size_t sequence) const { return recurrent(step_.pages[sequence][1]); }

 private:
  double* at(int64_t table, size_t sequence, int64_t position, int64_t head) const {
    const int64_t page = step_.pages[sequence][position / kKvPageTokens];
    auto* data = reinterpret_cast<double*>(step_.memory + page * step_.page_bytes + table + head * place_.head_bytes);
    return data + position % kKvPageTokens * attrs_.head_dim;
  }
  double* recurrent(int64_t page) const {
    return reinterpret_cast<double*>(step_.memory + page * step_.page_bytes + place_.keys);
  }
  const StateAttrs& attrs_;
  KvPlace place_;
  const StateStep& step_;
};

class ReferenceContext {
 public:
  ReferenceContext(const Graph& graph, const StatePlan& states, const Op& op, std::vector<HostTensor>& values,
                   const StepContext& step)
      : graph_(graph), states_(states), op_(op), values_(values), step_(step) {}
  const HostTensor& in(size_t i) const { return values_[static_cast<size_t>(op_.inputs[i])]; }
  size_t num_inputs() const { return op_.inputs.size(); }
  /// Returns output i, zero-initialized and in its final shape.
  HostTensor& out(size_t i = 0) { return values_[static_cast<size_t>(op_.outputs[i])]; }
  template <class T>
  const T& attrs() const {
    return *std::any_cast<T>(&op_.attrs);
  }
  /// Returns input i, which must be a state.
  ReferenceState state(size_t i) const {
    const ValueId id = op_.inputs[i];
    return {graph_.value(id).state, states_.kv_place(graph_, id), step_.states[states_.place(id).group]};
  }
  /// Returns the sequences of the step, for ops on states.
  std::span<const SequenceRows> sequences() const { return step_.sequences; }
  /// Returns the symbol values of this step, for sizes that the shapes do not give.
  const SymbolValues& sizes() const { return step_.sizes; }
  std::span<const AdapterSegment> adapters() const { return step_.adapters; }
  /// Returns how each row of logits is sampled; empty: the host samples all.
  std::span<const SampleRow> samples() const { return step_.samples; }

 private:
  const Graph& graph_;
  const StatePlan& states_;
  const Op& op_;
  std::vector<HostTensor>& values_;
  const StepContext& step_;
};

/// Adds the step's adapters at a site to y, where y is the product of x with rows [first_feature, first_feature +
/// y.cols()) of the site's matrix. nullptr: there is no site.
void add_adapters_reference(const ReferenceContext& c, const AdapterSite* site, const HostTensor& x, HostTensor& y,
                            int64_t first_feature = 0);

}  // namespace redline
