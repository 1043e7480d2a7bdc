// Layer normalization, plain and modulated.
#pragma once

#include "graph/graph.h"

namespace redline {

struct LayerNormAttrs {
  float eps = 1e-5f;
  bool centred = true;  ///< false: divides by the root mean square without subtracting the mean
  int64_t group = 0;    ///< elements that are normalized together; 0: the whole row
};

/// Layer normalization of rows (Ba et al. 2016, arXiv:1607.06450):
///   y[r, c] = (x[r, c] - mean_c) / sqrt(variance_c + eps) * weight[c] + bias[c]
/// or of equal groups of a row, for example the heads of queries, each with its own part of weight and bias.
///
/// x             [rows, cols]  f32
/// weight, bias  [cols]        f32, f16 or bf16; each optional (an invalid Value is none)
/// returns like x; can be stored in the layouts that linear ops read
/// invalid_argument: a shape or dtype other than the above, or groups that do not divide a row.
Value layer_norm(GraphBuilder& g, Value x, Value weight, Value bias, LayerNormAttrs attrs = {});

/// The columns of a modulation table that one norm uses.
struct Modulation {
  Value table;            ///< [batch, columns]  f32: one row per item of the batch
  int64_t shift = 0;      ///< first of the x.cols shift columns; -1: none
  int64_t scale = 0;      ///< first of the x.cols scale columns s; the factor is 1 + s
  Dim rows_per_item = 1;  ///< rows [i * rows_per_item, (i + 1) * rows_per_item) of x belong to item i
};

/// Adaptive layer normalization (Peebles and Xie 2022, arXiv:2212.09748, section 3.2):
///   y[r, c] = norm(x)[r, c] * (1 + table[i, scale + c]) + table[i, shift + c],  i the item of row r
/// The norm itself has no weights.
Value modulated_norm(GraphBuilder& g, Value x, Modulation modulation, LayerNormAttrs attrs = {1e-6f, true});
/// Attributes of both ops.
struct LayerNormOpAttrs {
  LayerNormAttrs norm;
  bool has_weight = false, has_bias = false;
  bool modulated = false;  ///< input 1 is the table
  int64_t shift = -1, scale = -1;
  Dim rows_per_item = 1;
};

extern const OpDef kLayerNorm;
extern const OpDef kModulatedNorm;

}  // namespace redline
