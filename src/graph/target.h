// What passes and planning ask of the device that a graph is compiled for.
#pragma once

#include <string>

#include "graph/graph.h"

namespace redline {

class Target {
 public:
  virtual ~Target() = default;

  virtual std::string name() const = 0;  ///< "cpu/avx512_bf16"
  virtual int workers() const = 0;       ///< threads or streaming multiprocessors
  /// Layouts in which products with weights of this type take their activation, by number of rows.
  virtual ActivationLayouts activation_layouts(DType weight) const = 0;
  /// Whether a conv2d can normalize its input itself, so that a group_norm before it needs only its statistics.
  virtual bool fuses_group_norm(const Graph& graph, const Op& conv) const = 0;
  /// Heads of a multiple of this size can be projected one by one (fuse_qkv).
  virtual int64_t head_dim_grain() const = 0;
  /// Widest row in bytes that an op can write in another layout than float32 by itself.
  virtual int64_t max_prepared_row_bytes() const = 0;
  virtual int64_t arena_alignment() const { return 64; }
};

}  // namespace redline
