#pragma once

#include "graph/graph.h"

namespace redline {

struct LinearAttrs {
  bool has_bias = false;
  bool has_residual = false;  ///< set by passes/fuse_residual
  /// Set by passes/fuse_gate, with a residual: what stands before the residual is multiplied by columns [gate_column,
  /// ..) of a table [batch, columns], the last input, whose row i serves rows [i * rows_per_item, (i + 1) *
  /// rows_per_item).
  bool has_gate = false;
  int64_t gate_column = 0;
  Dim rows_per_item = 1;
};

/// y[m, n] = sum_k x[m, k] * weight[n, k] + bias[n]
///
/// x       [rows, in_features]             f32
/// weight  [out_features, in_features]     any weight type; rows of a block format are whole blocks
/// bias    [out_features]                  f32, f16 or bf16; optional (an invalid Value is none)
/// returns [rows, out_features]            f32
/// With CompileOptions::exact_f32 every product is a float32 one; otherwise block formats meet x rounded to int8 in
/// groups of 32 (kernels/cpu/cpu_kernels.h linear_q8 states the bound).
Value linear(GraphBuilder& g, Value x, Value weight, Value bias = {});

extern const OpDef kLinear;

}  // namespace redline
