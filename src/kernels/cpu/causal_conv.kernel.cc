// A depthwise convolution over the tokens of one sequence: lanes are channels, the inputs of the last tokens stay in
// registers. A channel's sum begins with the bias and adds its taps from the oldest to the newest, so bits do not
// depend on how rows are cut into calls. Error: (taps + 1) 2^-24 of sum |weight x|, then that of silu.
#include "kernels/cpu/activation_functions.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/recurrence.h"

namespace redline::REDLINE_ISA_NS {
namespace {

template <int taps>
void convolve(const CausalConvArgs& a) {
  for_lanes(a.channels, [&](int64_t c, auto lanes) {
    VecF32 weight[taps], window[taps];
    for (int i = 0; i < taps; ++i) weight[i] = load(a.weight + i * a.stride + c, lanes);
    for (int i = 0; i + 1 < taps; ++i) window[i + 1] = load(a.before + i * a.stride + c, lanes);
    const VecF32 bias = a.bias != nullptr ? load(a.bias + c, lanes) : zero_f32();
    for (int64_t r = 0; r < a.rows; ++r) {
      for (int i = 0; i + 1 < taps; ++i) window[i] = window[i + 1];
      window[taps - 1] = load(a.x + r * a.stride + c, lanes);
      VecF32 sum = bias;
      for (int i = 0; i < taps; ++i) sum = fma(weight[i], window[i], sum);
      store(a.y + r * a.stride + c, a.has_silu ? silu(sum) : sum, lanes);
    }
    for (int i = 0; i + 1 < taps; ++i) store(a.after + i * a.stride + c, window[i + 1], lanes);
  });
}

void causal_conv(const CausalConvArgs& a) {
  static_assert(kMaxConvTaps == 4);
  if (a.taps == 2) return convolve<2>(a);
  if (a.taps == 3) return convolve<3>(a);
  convolve<4>(a);
}

}  // namespace

void fill_causal_conv(CpuKernels& table) { table.causal_conv = causal_conv; }

}  // namespace redline::REDLINE_ISA_NS
