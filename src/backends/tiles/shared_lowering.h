// Functions that several lowerings share.
#pragma once

#include <optional>

#include "backends/tiles/tile_lowering.h"

namespace redline {

/// Sets sizes and chunks for `matrix`, one of those that the kernel multiplies with. unsupported: its type has no
/// kernel.
Status set_product(tiles::LinearArgs& args, const ValueInfo& matrix);

/// Returns true if products with the type use float32: by option, or because rounding float16 or float32 weights to
/// bfloat16 would lose bits of the model.
bool multiplies_in_f32(const TileLowerContext& c, DType weight);

/// Adds the stage y = op(a, b), in place of a. `b` is nullopt for ops of one operand.
void add_elementwise(TileLowerContext& c, tiles::Elementwise::Op op, ValueId a, std::optional<ValueId> b, float number,
                     Activation activation);

/// Adds the stage that computes output 0 as residual + x * table[item, column ...]; the table is input `table`.
void add_gated(TileLowerContext& c, ValueId x, ValueId residual, size_t table, int64_t column, const Dim& item_rows);

}  // namespace redline
