// Properties of the target device that passes and planning use.
#pragma once

#include <string>

#include "graph/graph.h"

namespace redline {

class Target {
 public:
  virtual ~Target() = default;

  virtual std::string name() const = 0;  ///< "cpu/avx512_bf16"
  virtual int workers() const = 0;       ///< threads or streaming multiprocessors
  /// Layouts in which linear ops with weights of this type read their activation, by number of rows.
  virtual ActivationLayouts activation_layouts(DType weight) const = 0;
  /// Returns true if a conv2d can normalize its input itself, so that the preceding group_norm computes only
  /// statistics.
  virtual bool fuses_group_norm(const Graph& graph, const Op& conv) const = 0;
  /// Returns the size that heads, and halves of a matrix with adapters, must be a multiple of to be projected
  /// separately.
  virtual int64_t head_dim_grain() const = 0;
  /// Returns the maximum row size in bytes that an op can write directly in a layout other than float32.
  virtual int64_t max_prepared_row_bytes() const = 0;
};

}  // namespace redline
