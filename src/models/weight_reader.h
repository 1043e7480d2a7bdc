// Reads a checkpoint's tensors by name and shape, and reports those that nothing has used.
#pragma once

#include <set>
#include <span>

#include "models/checkpoint.h"

namespace redline {

/// Of the names after the first one " (and 3 more: A, B, C)"; empty if there are none.
std::string and_more(std::span<const std::string> names);

class WeightReader {
 public:
  WeightReader(GraphBuilder& g, const Checkpoint& checkpoint) : g_(g), checkpoint_(checkpoint) {}

  /// Fails the graph with the tensor's name when it is missing or its shape differs (trailing axes of 1 aside). Row n
  /// of the value is row source_row(n) of the tensor; without source_row it is row n.
  Value take(const std::string& name, const std::vector<int64_t>& shape,
             const std::function<int64_t(int64_t)>& source_row = {});
  /// The same for a tensor of shape `stored`, reinterpreted as `shape`.
  Value take_as(const std::string& name, const std::vector<int64_t>& stored, const std::vector<int64_t>& shape);
  /// Rows [begin, begin + rows) of a tensor of shape `stored`, as the value `part`. Random weights are made for each
  /// part.
  Value take_rows(const std::string& name, const std::vector<int64_t>& stored, int64_t begin, int64_t rows,
                  const std::string& part);
  /// Rows [begin, begin + rows) of matrix `index` of a tensor of shape `stored`, [matrices, rows, columns], as the
  /// value `part`.
  Value take_slice(const std::string& name, const std::vector<int64_t>& stored, int64_t index, int64_t begin,
                   int64_t rows, const std::string& part);
  /// Rows row_of(0), row_of(1), ... of a matrix of shape `stored`, as the value `part`, a view.
  Value take_picked(const std::string& name, const std::vector<int64_t>& stored, int64_t rows,
                    const std::function<int64_t(int64_t)>& row_of, const std::string& part);
  /// The same of rows row_of(0), row_of(1), ..., copied.
  Value take_gathered(const std::string& name, const std::vector<int64_t>& stored, int64_t rows,
                      const std::function<int64_t(int64_t)>& row_of, const std::string& part);
  /// The same of a float matrix stored as [in, out], transposed.
  Value take_transposed(const std::string& name, int64_t in, int64_t out, int64_t begin, int64_t rows,
                        const std::string& part);
  using Maker = std::function<void(const TensorView& from, uint8_t* to)>;
  /// The value `part` of `shape`, of the type of the float tensor `name` of shape `stored`, from which
  /// `make` computes it.
  Value take_made(const std::string& name, const std::string& part, const std::vector<int64_t>& stored,
                  const std::vector<int64_t>& shape, const Maker& make);
  /// A float vector with `change` applied to its elements, in float32.
  Value take_changed(const std::string& name, const std::vector<int64_t>& shape, float (*change)(float));
  /// A vector plus 1 in float32; from GGUF files, which store the sum, the vector itself.
  Value take_plus_one(const std::string& name, const std::vector<int64_t>& shape);
  /// The rows of part `part` of `parts` equal ones: several projections stored as one tensor. `shape` is that of a
  /// part.
  Value take_part(const std::string& name, const std::vector<int64_t>& shape, int64_t part, int64_t parts);
  /// The tensor itself, for values computed when sizes are known; counts as used. invalid_argument: as take.
  Result<WeightSource> find(const std::string& name, const std::vector<int64_t>& shape);
  /// Whether a projection has a bias, according to the tensors or the config (Checkpoint::tensors_tell_biases).
  bool has_bias(const std::string& name, bool config_says) const {
    return checkpoint_.tensors_tell_biases ? has(name) : config_says;
  }
  bool has(const std::string& name) const { return checkpoint_.tensors.count(name) > 0; }
  /// Number of axes of the tensor as it is stored; 0: there is none.
  size_t rank(const std::string& name) const {
    const auto at = checkpoint_.tensors.find(name);
    return at == checkpoint_.tensors.end() ? 0 : at->second.view.shape.size();
  }
  bool is_vector(const std::string& name) const { return rank(name) == 1; }
  /// A tensor of checkpoints that the graph does not need (lm_head with tied embeddings, rotary tables).
  void ignore(const std::string& name) { taken_.insert(name); }
  /// For a model of several graphs: tensors used by another reader count as used.
  void add_taken(const WeightReader& other) { taken_.insert(other.taken_.begin(), other.taken_.end()); }
  /// invalid_argument: some tensors were not used; the message lists them.
  Status expect_all_taken() const;
  /// The status of a graph that could not be built, with all tensors that it lacks where that is why.
  Status with_missing(Status status) const;

 private:
  GraphBuilder& g_;
  const Checkpoint& checkpoint_;
  std::set<std::string> taken_;
  std::vector<std::string> missing_;  ///< names of the file
};

}  // namespace redline
