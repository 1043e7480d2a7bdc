// Weights that are no finite numbers: why logits, embeddings and images are none either.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "models/checkpoint.h"

namespace redline {

/// The first element of a tensor that is NaN or infinite, in the order of rows, as "is NaN at [3, 17]"; with the block
/// whose scale it is where the type has blocks. nullopt: all are finite, or the type holds whole numbers.
std::optional<std::string> find_not_finite(const WeightSource& weight);
/// The same of all tensors of a checkpoint, in the order of their names in the file: "FILE: tensor NAME is NaN at ...".
std::optional<std::string> find_not_finite(const Checkpoint& checkpoint);

/// Reads the files of a model again once a result is not finite, and tells which weight is the reason. Thread-safe.
/// That takes about a second per gigabyte, once.
class WeightExaminer {
 public:
  using Open = std::function<Result<Checkpoint>()>;
  /// `parts` open what the model was made of, in the order in which it runs.
  explicit WeightExaminer(std::vector<Open> parts) : parts_(std::move(parts)) {}
  /// Examines the checkpoint at `path`.
  explicit WeightExaminer(const std::string& path);

  /// `failure` is of a result that is not finite. io with the tensor, if the files have such a weight; else `failure`,
  /// which then says that they have none.
  Status explain(Status failure);

 private:
  std::vector<Open> parts_;
  std::mutex mutex_;
  bool is_searched_ = false, has_weights_ = false;
  std::optional<std::string> broken_;
};

/// The same for the checkpoint at `path`, whose files are read again only when it has changed.
Status explain_not_finite(Status failure, const std::string& path);

}  // namespace redline
