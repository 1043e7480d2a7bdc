// What several lowerings share.
#pragma once

#include <optional>

#include "backends/tiles/tile_lowering.h"

namespace redline {

/// Sizes and chunks of `matrix`, one of those that the kernel multiplies with. unsupported: its type has no kernel.
Status set_product(tiles::LinearArgs& args, const ValueInfo& matrix);

/// Whether products with the type are in float32: asked for, or because rounding float16 or float32 weights to bfloat16
/// would lose bits that the model has.
bool multiplies_in_f32(const TileLowerContext& c, DType weight);

/// Adds the stage y = op(a, b), in place of a. `b`: absent for ops of one operand.
void add_elementwise(TileLowerContext& c, tiles::Elementwise::Op op, ValueId a, std::optional<ValueId> b, float number,
                     Activation activation);

/// Adds the stage that computes output 0 as residual + x * table[item, column ...]; the table is input `table`.
void add_gated(TileLowerContext& c, ValueId x, ValueId residual, size_t table, int64_t column, const Dim& item_rows);

}  // namespace redline
