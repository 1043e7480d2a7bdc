// The operands that all lowerings of a convolution have.
#pragma once

#include "backends/cpu/lowering.h"
#include "graph/ops/convolution.h"

namespace redline {

/// Declares the operands of the stage that computes the output: `p` has the attributes as `op`, and the operands x,
/// item_bias, residual and y.
template <class Params>
void add_convolution_operands(Params& p, const LowerContext& c, LoweredStage& stage) {
  const auto& in = c.op().inputs;
  const ConvolutionInputIndex at(p.op);
  stage.read(p.x, in[0], Reads::kAll);
  if (at.item_bias) stage.read(p.item_bias, in[at.item_bias], Reads::kAll);
  if (at.residual) {
    stage.read(p.residual, in[at.residual], Reads::kTile);
    stage.in_place_of = in[at.residual];
  }
  stage.write(p.y, c.op().outputs[0]);
}

}  // namespace redline
