// The order in which a weight matrix lies in memory for the linear kernels.
#pragma once

#include <functional>

#include "tensor/layout.h"
#include "tensor/strip_rows.h"
#include "tensor/tensor_view.h"

namespace redline {

/// Strips of 16 output rows, stored so that one kernel streams one strip after the other.
///   plain types   unit = element: [N/16][K/e][16][e] with e = 4 / element bytes (f32 1, f16 and bf16 2): one 64-byte
///                 line is 16 rows x 4 bytes of K, the operand order of vpdpbusd, vpdpbf16ps and the AMX tiles alike
///   block types   unit = strip block, 16 rows x one block of K: [N/16][K/block]. Inside, scales of the 16 rows lie
///   side
///                 by side before planes of codes that a shift and a mask turn into such lines (tensor/blocks/strip.h);
///                 that is a rewriting of bits, not an order of elements, so the layout ends at the unit
///   w8a8          tiles of 64 elements of K, each 16 lines of 16 rows x 4; after them a line of scales
///   (tensor/w8a8.h), which
///                 the layout leaves out
/// The logical index of a plain type and of w8a8 is row * (K padded) + k; of a block type strip * (K / block) + block.
/// N is padded to whole strips and K to whole lines; the padding is zeros.
Layout packed_layout(DType dtype, int64_t out_features, int64_t in_features);
int64_t packed_unit_bytes(DType dtype);
/// Bytes of the packed matrix, padding included.
int64_t packed_bytes(DType dtype, int64_t out_features, int64_t in_features);

/// The matrix that a weight packs as: itself, or of a convolution's [out, in, kernel, kernel], which must be of a plain
/// type, [out, kernel * kernel * in], the order of patches of pixels (kernels/cpu/conv2d.h): [in / 32][kernel *
/// kernel][32] where `in` is a multiple of 32, else [kernel * kernel][in].
struct MatrixSize {
  int64_t out_features, in_features;
};
MatrixSize packed_matrix(const TensorView& weight);
int64_t packed_bytes(const TensorView& weight);

/// Packs strips [strip_begin, strip_end) of `weight` (its packed_matrix, row-major) into `target`, following
/// packed_layout. `source_row`, when given, names the row of `weight` that becomes row n (a checkpoint with another
/// rope order). Strips are independent: call from several threads.
void pack_strips(const TensorView& weight, int64_t strip_begin, int64_t strip_end, void* target,
                 const std::function<int64_t(int64_t)>& source_row = {});

}  // namespace redline
