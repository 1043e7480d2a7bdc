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

class LowerContext;
/// The kernels of the product by the matrix that is input i of the op; x is input 0. unsupported: no kernel reads its
/// type.
Result<LinearKernels> linear_kernels(const LowerContext& c, size_t i);
/// Bytes of a packed matrix that one output column takes; columns follow each other strip by strip.
int64_t packed_col_bytes(const ValueInfo& weight);
/// Columns of a block of `rows` rows of float32 of each of so many matrices that stays within the second-level cache,
/// cut where prepared forms may be; and the room for such blocks in WorkerContext::buffer, where one row may be wider
/// than that.
inline constexpr int64_t kFormGrain = 32;  // of all forms but kI8
int64_t block_cols(int64_t rows, int64_t matrices);
int64_t block_bytes(int64_t most_rows, int64_t matrices);
/// Into how many tiles the product by `cols` columns of `weight_bytes` is cut: enough that workers end together, each
/// with enough weight bytes to be worth its events, none narrower than it must be.
int linear_tiles(const LowerContext& c, int64_t cols, int64_t weight_bytes);

}  // namespace redline
