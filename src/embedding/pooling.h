// Computes embeddings from hidden states.
#pragma once

#include <span>
#include <vector>

#include "redline/embedding.h"

namespace redline {

/// Pools the hidden states of one text to one vector, some tokens at a time. Sums are in double.
class Pooler {
 public:
  Pooler(Pooling pooling, int64_t width) : pooling_(pooling), sums_(static_cast<size_t>(width)) {}
  /// Adds the states of the next tokens, [tokens, width].
  void add(const float* hidden, int64_t tokens);
  /// Writes the vector, of `width` elements; at least one token must have been added.
  void finish(std::span<float> out) const;

 private:
  Pooling pooling_;
  int64_t tokens_ = 0;
  std::vector<double> sums_;  ///< of kCls, kLast and kMax: the elements themselves
};
/// Pools hidden states to one vector. `hidden`: [tokens, width], at least one token.
void pool(Pooling pooling, const float* hidden, int64_t tokens, std::span<float> out);
/// Divides a vector by its Euclidean norm, but at least by 1e-12 (as PyTorch's normalize).
void normalize(std::span<float> vector);
/// Returns the cosine of two vectors of any length; 0 if one of them is zero.
double cosine(std::span<const float> a, std::span<const float> b);

}  // namespace redline
