// Matrix product with a weight.
#pragma once

#include "graph/adapters.h"

namespace redline {

struct LinearAttrs {
  bool has_bias = false;
  bool has_residual = false;  ///< set by passes/fuse_residual
  /// Set by passes/fuse_gate, together with a residual: before the residual is added, the result is multiplied by
  /// columns [gate_column, ..) of a table [batch, columns], the last input. Table row i applies to rows [i *
  /// rows_per_item, (i + 1) * rows_per_item).
  bool has_gate = false;
  int64_t gate_column = 0;
  Dim rows_per_item = 1;
  std::shared_ptr<AdapterSite> adapters;  ///< added to the product, before gate and residual; nullptr: no site
};

/// y[m, n] = sum_k x[m, k] * weight[n, k] + bias[n]
///
/// x       [rows, in_features]             f32
/// weight  [out_features, in_features]     any weight type; rows of a block format consist of whole blocks
/// bias    [out_features]                  f32, f16 or bf16; optional (an invalid Value is none)
/// returns [rows, out_features]            f32
/// With ExecutableOptions::exact_f32 all arithmetic is float32. Otherwise x is quantized to int8 or bfloat16 as the
/// kernels for the weight's type and the number of rows read it (docs/numerics.md states the error bounds).
Value linear(GraphBuilder& g, Value x, Value weight, Value bias = {});

struct HostTensor;
/// Computes linear() in float64, for references. bias may be nullptr.
void linear_reference(const HostTensor& x, const HostTensor& weight, const HostTensor* bias, HostTensor& y);

extern const OpDef kLinear;

}  // namespace redline
