// Reads a checkpoint's tensors by name and shape, and reports those that nothing has used.
#pragma once

#include <set>
#include <span>

#include "models/checkpoint/checkpoint.h"

namespace redline {

/// Returns " (and 3 more: A, B, C)" for the names after the first one; "" if there is at most one.
std::string and_more(std::span<const std::string> names);

class WeightReader {
 public:
  WeightReader(GraphBuilder& g, const Checkpoint& checkpoint) : g_(g), checkpoint_(checkpoint) {}

  /// Adds a tensor of the checkpoint as a weight. If it is missing or its shape differs (except trailing axes of 1),
  /// the graph fails with the tensor's name. Row n of the value is row source_row(n) of the tensor; without source_row
  /// it is row n.
  Value take(const std::string& name, const std::vector<int64_t>& shape,
             const std::function<int64_t(int64_t)>& source_row = {});
  /// Adds a tensor of shape `stored`, reinterpreted as `shape`.
  Value take_as(const std::string& name, const std::vector<int64_t>& stored, const std::vector<int64_t>& shape);
  /// Adds rows [begin, begin + rows) of a tensor of shape `stored` as the value `part`. Random weights are made
  /// separately for each part.
  Value take_rows(const std::string& name, const std::vector<int64_t>& stored, int64_t begin, int64_t rows,
                  const std::string& part);
  /// Adds rows [begin, begin + rows) of matrix `index` of a tensor of shape `stored`, [matrices, rows, columns], as the
  /// value `part`.
  Value take_slice(const std::string& name, const std::vector<int64_t>& stored, int64_t index, int64_t begin,
                   int64_t rows, const std::string& part);
  /// Adds rows row_of(0), row_of(1), ... of a matrix of shape `stored` as the value `part`, a view of the file.
  Value take_picked(const std::string& name, const std::vector<int64_t>& stored, int64_t rows,
                    const std::function<int64_t(int64_t)>& row_of, const std::string& part);
  /// Adds rows row_of(0), row_of(1), ... of a matrix of shape `stored` as the value `part`, a copy.
  Value take_gathered(const std::string& name, const std::vector<int64_t>& stored, int64_t rows,
                      const std::function<int64_t(int64_t)>& row_of, const std::string& part);
  /// Adds rows [begin, begin + rows) of the transpose of a float matrix, which is stored as [in, out], as the value
  /// `part`, a copy.
  Value take_transposed(const std::string& name, int64_t in, int64_t out, int64_t begin, int64_t rows,
                        const std::string& part);
  /// take_transposed() for matrix `index` of a tensor [matrices, in, out].
  Value take_transposed_slice(const std::string& name, const std::vector<int64_t>& stored, int64_t index, int64_t begin,
                              int64_t rows, const std::string& part);
  using Maker = std::function<void(const TensorView& from, uint8_t* to)>;
  /// Adds the value `part` of shape `shape`, which `make` computes from the float tensor `name` of shape `stored`. It
  /// has the tensor's type.
  Value take_made(const std::string& name, const std::string& part, const std::vector<int64_t>& stored,
                  const std::vector<int64_t>& shape, const Maker& make);
  /// Adds a float32 vector that is not in the checkpoint, because the config determines it.
  Value add(const std::string& name, const std::vector<float>& values);
  /// Adds the float32 value `part` of the elements of `names`, vectors of `size` elements, one after the other.
  /// Element n is element source(n) of them together; without source it is element n.
  Value take_joined(const std::vector<std::string>& names, int64_t size, const std::string& part,
                    const std::function<int64_t(int64_t)>& source = {});
  /// Adds a float vector with `change` applied to its elements, in float32.
  Value take_changed(const std::string& name, const std::vector<int64_t>& shape, float (*change)(float));
  /// Adds a vector plus 1 in float32. GGUF files store the sum, so from them the vector itself is added.
  Value take_plus_one(const std::string& name, const std::vector<int64_t>& shape);
  /// Adds part `part` of a tensor of `parts` equal parts, several projections stored as one tensor. `shape` is that of
  /// a part.
  Value take_part(const std::string& name, const std::vector<int64_t>& shape, int64_t part, int64_t parts);
  /// Returns the tensor itself, for values that are computed when sizes are known, and counts it as used.
  /// invalid_argument: as take().
  Result<WeightSource> find(const std::string& name, const std::vector<int64_t>& shape);
  /// Returns true if a projection has a bias, according to the tensors or the config (Checkpoint::tensors_tell_biases).
  bool has_bias(const std::string& name, bool config_says) const {
    return checkpoint_.tensors_tell_biases ? has(name) : config_says;
  }
  bool has(const std::string& name) const { return checkpoint_.tensors.count(name) > 0; }
  /// Returns the number of axes of the stored tensor; 0 if there is no such tensor.
  size_t rank(const std::string& name) const {
    const auto at = checkpoint_.tensors.find(name);
    return at == checkpoint_.tensors.end() ? 0 : at->second.view.shape.size();
  }
  /// Returns the shape of the stored tensor; empty if there is no such tensor.
  std::vector<int64_t> shape(const std::string& name) const {
    const auto at = checkpoint_.tensors.find(name);
    return at == checkpoint_.tensors.end() ? std::vector<int64_t>() : at->second.view.shape;
  }
  bool is_vector(const std::string& name) const { return rank(name) == 1; }
  /// Counts a tensor as used that the graph does not need (lm_head with tied embeddings, rotary tables).
  void ignore(const std::string& name) { taken_.insert(name); }
  /// Counts the tensors used by another reader as used, for a model of several graphs.
  void add_taken(const WeightReader& other) { taken_.insert(other.taken_.begin(), other.taken_.end()); }
  /// Returns invalid_argument if some tensors were not used; the message lists them.
  Status expect_all_taken() const;
  /// Returns the status of a graph that could not be built, with the list of all missing tensors if these are the
  /// reason.
  Status with_missing(Status status) const;

 private:
  GraphBuilder& g_;
  const Checkpoint& checkpoint_;
  std::set<std::string> taken_;
  std::vector<std::string> missing_;  ///< names of the tensors in the file
};

}  // namespace redline
