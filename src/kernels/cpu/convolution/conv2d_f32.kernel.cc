// Whole convolutions in float32.
#include "kernels/cpu/convolution/conv2d_tiles.h"
#include "kernels/cpu/convolution/conv_depthwise.h"

namespace redline::REDLINE_ISA_NS {
namespace {

void conv_f32(const ConvPatchesArgs& a) {
  if (a.depthwise) conv_depthwise(*a.depthwise);
  else ConvTilesRun<ConvF32>(a, *a.tiles).run();
}

}  // namespace

void fill_conv2d_f32(CpuKernels& table) { table.conv_f32 = conv_f32; }

}  // namespace redline::REDLINE_ISA_NS
