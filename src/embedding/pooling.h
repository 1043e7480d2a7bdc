// Computes embeddings from hidden states.
#pragma once

#include <span>

#include "redline/embedding.h"

namespace redline {

/// Pools hidden states to one vector. `hidden`: [tokens, width], at least one token. Sums are in double.
void pool(Pooling pooling, const float* hidden, int64_t tokens, std::span<float> out);
/// Divides a vector by its Euclidean norm, but at least by 1e-12 (as PyTorch's normalize).
void normalize(std::span<float> vector);
/// Returns the cosine of two vectors of any length; 0 if one of them is zero.
double cosine(std::span<const float> a, std::span<const float> b);

}  // namespace redline
