// Packed layout of weight matrices for the linear kernels.
#pragma once

#include <functional>

#include "tensor/layout.h"
#include "tensor/row_panel.h"
#include "tensor/tensor_view.h"

namespace redline {

/// Returns the layout of a packed matrix: row panels of 16 output rows, each streamed by a kernel in order.
///   plain types   unit = element: [N/16][K/e][16][e] with e = 4 / element bytes (f32 1, f16 and bf16 2): each 64-byte
///                 line is 16 rows x 4 bytes of K, the operand order of vpdpbusd, vpdpbf16ps and the AMX tiles alike
///   block types   unit = panel block, 16 rows x one block of K: [N/16][K/block]. Inside, the scales of the 16 rows
///                 come first, then planes of codes that a shift and a mask turn into such lines
///                 (tensor/blocks/row_panel.h). That changes bits, not only the order of elements, so the layout ends
///                 at the unit
///   row types     unit = a byte: tiles of 64 elements of K, each 16 x 64 bytes of 16 rows x 4; then the scales of the
///                 rows (tensor/blocks/w8a8.h), which the layout omits
/// The logical index is row * (K padded) + k for plain and row types, and panel * (K / block) + block for block types.
/// N is padded to whole row panels and K to whole 64-byte lines, with zeros.
Layout packed_layout(DType dtype, int64_t out_features, int64_t in_features);
int64_t packed_unit_bytes(DType dtype);
/// Returns the bytes of the packed matrix, padding included.
int64_t packed_bytes(DType dtype, int64_t out_features, int64_t in_features);

/// The size of the matrix that a weight is packed as. A matrix is packed as it is. A convolution [out, in, kernel, ...]
/// of a plain type becomes [out, taps * in] in the order of patches (kernels/cpu/convolution/conv2d.h):
/// [in / 32][taps][32] where `in` is a multiple of 32, else [taps][in]. A convolution of a block type becomes
/// [out, in * taps], its rows as they are stored.
struct MatrixSize {
  int64_t out_features, in_features;
};
MatrixSize packed_matrix(const TensorView& weight);
int64_t packed_bytes(const TensorView& weight);

/// Packs row panels [row_panel_begin, row_panel_end) of `weight` (its packed_matrix, row-major) into `target`,
/// following packed_layout. `source_row`, if given, maps row n to a row of `weight` (for checkpoints with another rope
/// order). Row panels are independent and may be packed from several threads.
void pack_row_panels(const TensorView& weight, int64_t row_panel_begin, int64_t row_panel_end, void* target,
                     const std::function<int64_t(int64_t)>& source_row = {});

}  // namespace redline
