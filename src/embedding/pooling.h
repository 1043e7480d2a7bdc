// From hidden states to embeddings.
#pragma once

#include <span>

#include "redline/embedding.h"

namespace redline {

/// `hidden`: [tokens, width], at least one token; sums in double.
void pool(Pooling pooling, const float* hidden, int64_t tokens, std::span<float> out);
/// Divides by the Euclidean norm, at least 1e-12 (as PyTorch's normalize).
void normalize(std::span<float> vector);
/// Of vectors of any length; 0 if one is zero.
double cosine(std::span<const float> a, std::span<const float> b);

}  // namespace redline
