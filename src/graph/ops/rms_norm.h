// Root-mean-square normalization of rows, or of equal groups of a row.
#pragma once

#include "graph/graph.h"
#include "graph/reference.h"

namespace redline {

struct RmsNormAttrs {
  float eps = 1e-5f;
};

/// Root-mean-square normalization of each group of `weight.size()` consecutive elements of a row:
///   y[r, g, c] = x[r, g, c] * weight[c] / sqrt(mean_c(x[r, g, c]^2) + eps)
/// Zhang and Sennrich 2019, arXiv:1910.07467. With one group this is the usual norm of a hidden state; with several,
/// the per-head norm of queries and keys (Qwen3).
///
/// x       [rows, groups * cols]  f32
/// weight  [cols]                 f32, f16 or bf16
/// returns like x
/// invalid_argument: weight is not a vector, or its size does not divide x's last axis.
Value rms_norm(GraphBuilder& g, Value x, Value weight, RmsNormAttrs attrs);

/// Computes rms_norm() in float64; y may be x.
void rms_norm_reference(const HostTensor& x, const HostTensor& weight, double eps, HostTensor& y);

extern const OpDef kRmsNorm;

}  // namespace redline
