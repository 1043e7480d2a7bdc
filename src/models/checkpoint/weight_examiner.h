// Searches for weights that are NaN or infinite, to explain logits, embeddings and images that are not finite.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "models/checkpoint/checkpoint.h"

namespace redline {

/// Returns the first element of a tensor, in the order of rows, that is NaN or infinite, as "is NaN at [3, 17]". If the
/// type has blocks, the text names the block whose scale it is. nullopt: all elements are finite, or the type holds
/// integers.
std::optional<std::string> find_not_finite(const WeightSource& weight);
/// Searches all tensors of a checkpoint, in the order of their names in the file. Returns "FILE: tensor NAME is NaN at
/// ...", or nullopt.
std::optional<std::string> find_not_finite(const Checkpoint& checkpoint);

/// Finds the weight that makes a result not finite. Reads the files of the model again, which takes about a second per
/// gigabyte, but only once. Thread-safe.
class WeightExaminer {
 public:
  using Open = std::function<Result<Checkpoint>()>;
  /// `parts` open the checkpoints of the model, in the order in which its networks run.
  explicit WeightExaminer(std::vector<Open> parts) : parts_(std::move(parts)) {}
  /// Examines the checkpoint at `path`.
  explicit WeightExaminer(const std::string& path);

  /// Explains `failure`, the error of a result that is not finite. If the files have a weight that is not finite,
  /// returns an io error that names the tensor; else returns `failure` with a note that all weights are finite.
  Status explain(Status failure);

 private:
  std::vector<Open> parts_;
  std::mutex mutex_;
  bool is_searched_ = false, has_weights_ = false;
  std::optional<std::string> broken_;
};

/// Explains a failure for the checkpoint at `path`. Its files are read again only if it has changed since the last
/// call.
Status explain_not_finite(Status failure, const std::string& path);

}  // namespace redline
