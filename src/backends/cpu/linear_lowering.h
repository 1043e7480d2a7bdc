// Helpers of the lowerings of linear ops.
#pragma once

#include "backends/cpu/lowering.h"

namespace redline {

/// Returns the kernels for a matrix, one for each layout of x. unsupported: no kernel reads its type.
Result<LinearKernels> kernels_of_weight(const LowerContext& c, const ValueInfo& weight);
/// Returns the kernels for the matrix that is input i of the op; x is input 0. unsupported: no kernel reads its type.
Result<LinearKernels> linear_kernels(const LowerContext& c, size_t i);
/// Returns the bytes per output column of a packed matrix; columns are stored row panel by row panel.
int64_t packed_col_bytes(const ValueInfo& weight);
/// block_cols returns the columns of a float32 block of `rows` rows per matrix such that the blocks of all matrices
/// stay in the L2 cache; it cuts only where activation layouts allow it. block_bytes returns the WorkerContext::buffer
/// bytes for such blocks; a single row may be wider than that.
inline constexpr int64_t kFormGrain = 32;  // column grain of the layouts without shared scales
int64_t block_cols(int64_t rows, int64_t matrices);
int64_t block_bytes(int64_t max_rows, int64_t matrices);
/// Returns the number of column tiles of a linear with `cols` columns of `weight_bytes` each. There are enough for
/// workers to finish together, and each has enough weight bytes to be worth its events and at least the minimum width.
int linear_tiles(const LowerContext& c, int64_t cols, int64_t weight_bytes);

}  // namespace redline
