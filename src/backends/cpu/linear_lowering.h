// What the lowerings of products share.
#pragma once

#include "backends/cpu/lowering.h"

namespace redline {

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
