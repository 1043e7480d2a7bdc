// Phases, operands and the leading state of convolutions.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "backends/cpu/convolution_lowering.h"
#include "backends/cpu/convolution_operands.h"

namespace redline {
namespace {

/// Returns the phase of a transposed axis whose outputs o have (o + pad_before) % stride == remainder. With o + pad =
/// stride m + remainder, tap t reaches input m + (remainder - dilation t) / stride, where that is an integer.
ConvPhase::Axis transposed_phase(const ConvAxis& a, int64_t remainder) {
  const int64_t common = std::gcd(a.stride, a.dilation);
  ConvPhase::Axis phase = {.taps = 0,
                           .step = 1,
                           .first = 0,
                           .tap_step = -(a.dilation / common),
                           .out_first = ((remainder - a.pad_before) % a.stride + a.stride) % a.stride,
                           .out_step = a.stride,
                           .tap_first = 0,
                           .tap_stride = a.stride / common};
  int64_t tap = 0;
  while (tap < phase.tap_stride && (remainder - a.dilation * tap) % a.stride != 0) ++tap;
  if (tap >= std::min(phase.tap_stride, a.kernel)) return phase;
  phase.tap_first = tap;
  phase.taps = (a.kernel - 1 - tap) / phase.tap_stride + 1;
  phase.first = (phase.out_first + a.pad_before - a.dilation * tap) / a.stride;
  return phase;
}

struct LeadingParams {
  ConvolutionOpAttrs op;
  int64_t channels, kept;
  int axis, tasks;
  RecurrentPlace leading;
  Operand<const float> x;
};

/// Stores the last positions of a chunk in the leading state. Each task stores a part of every position.
void run_keep_leading(const LeadingParams& p, const Tile& tile, const StepContext& step, WorkerContext&) {
  const ConvolutionGeometry s(p.op, step.sizes);
  int64_t elements = p.channels;  // of one position
  for (int i = p.axis + 1; i < kConvMaxAxes; ++i) elements *= s.in[static_cast<size_t>(i)];
  const int64_t begin = elements * tile.index / p.tasks, end = elements * (tile.index + 1) / p.tasks;
  const auto bytes = static_cast<size_t>(end - begin) * sizeof(float);
  const int64_t size = s.in[static_cast<size_t>(p.axis)];
  const bool repeats = p.op.axes[0].padding == ConvPadding::kReplicate;
  for (size_t item = 0; bytes > 0 && item < std::min(static_cast<size_t>(s.batch), step.sequences.size()); ++item) {
    const float* x = p.x + static_cast<int64_t>(item) * s.in_pixels() * p.channels + begin;
    const float* before = p.leading.before(step, item) + begin;
    float* after = p.leading.after(step, item) + begin;
    const bool has_begun = step.sequences[item].first_position > 0;
    for (int64_t i = 0; i < p.kept; ++i) {
      const int64_t position = size - p.kept + i;
      const float* from = position >= 0         ? x + position * elements
                          : has_begun           ? before + (p.kept + position) * elements
                          : repeats && size > 0 ? x
                                                : nullptr;
      if (from != nullptr) std::memmove(after + i * elements, from, bytes);
      else std::memset(after + i * elements, 0, bytes);
    }
  }
}

}  // namespace

std::array<int64_t, kConvMaxAxes> ConvPhase::sizes(const ConvolutionGeometry& s) const {
  std::array<int64_t, kConvMaxAxes> n;
  for (size_t i = 0; i < kConvMaxAxes; ++i)
    n[i] = std::max<int64_t>(0, (s.out[i] - axes[i].out_first + axes[i].out_step - 1) / axes[i].out_step);
  return n;
}

int64_t ConvPhase::pixels(const ConvolutionGeometry& s) const {
  const auto n = sizes(s);
  return n[0] * n[1] * n[2];
}

int64_t ConvPhase::output_row(const ConvolutionGeometry& s, int64_t row) const {
  const auto n = sizes(s);
  const int64_t q[] = {row / (n[1] * n[2]) % n[0], row / n[2] % n[1], row % n[2]};
  int64_t output = row / (n[0] * n[1] * n[2]);
  for (size_t i = 0; i < kConvMaxAxes; ++i) output = output * s.out[i] + axes[i].out_first + q[i] * axes[i].out_step;
  return output;
}

int64_t ConvPhase::rows_before(const ConvolutionGeometry& s, int64_t output) const {
  int64_t low = 0, high = s.batch * pixels(s);
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (output_row(s, middle) < output) low = middle + 1;
    else high = middle;
  }
  return low;
}

std::vector<ConvPhase> conv_phases(const ConvolutionAttrs& attrs) {
  const auto axes = three_axes(attrs);
  std::vector<ConvPhase> phases;
  if (!attrs.is_transposed) {
    ConvPhase& only = phases.emplace_back();
    for (size_t i = 0; i < kConvMaxAxes; ++i)
      only.axes[i] = {axes[i].kernel, axes[i].stride, -axes[i].pad_before, axes[i].dilation, 0, 1, 0, 1};
    return phases;
  }
  for (int64_t r0 = 0; r0 < axes[0].stride; ++r0)
    for (int64_t r1 = 0; r1 < axes[1].stride; ++r1)
      for (int64_t r2 = 0; r2 < axes[2].stride; ++r2)
        phases.push_back(
            {{transposed_phase(axes[0], r0), transposed_phase(axes[1], r1), transposed_phase(axes[2], r2)}});
  return phases;
}

Status ConvolutionParams::init(LowerContext& c) {
  op = std::any_cast<const ConvolutionOpAttrs&>(c.op().attrs);
  axes = three_axes(op);
  phases = conv_phases(op);
  add = c.kernels().add;
  channels = c.in(0).shape[1].constant();
  out_features = c.out().shape[1].constant();
  if (op.has_norm) return internal("{}: only a SquareConv2d normalizes its input", c.in(1).name);
  if (op.adapters) return internal("{}: only a SquareConv2d has adapters", c.in(1).name);
  if (op.num_taps() > kConvMaxTaps)
    return unsupported("{} has {} taps; expected at most {}", c.in(1).name, op.num_taps(), kConvMaxTaps);
  const ConvolutionInputIndex at(op);
  if (at.bias) {
    REDLINE_ASSIGN(bias, c.dense_weight(at.bias));
  }
  if (!at.leading) return {};
  leading = RecurrentPlace::of(c, at.leading);
  const ConvolutionGeometry most(op, c.options().bounds);
  int64_t elements = op.axes[0].pad_before * channels;
  for (int i = kept_axis() + 1; i < kConvMaxAxes; ++i) elements *= most.in[static_cast<size_t>(i)];
  if (elements > c.in(at.leading).state.elements)
    return invalid_argument("the state {} has {} elements; {} positions of the largest size need {}",
                            c.in(at.leading).name, c.in(at.leading).state.elements, op.axes[0].pad_before, elements);
  return {};
}

void ConvolutionParams::add_operands(const LowerContext& c, LoweredStage& stage) {
  add_convolution_operands(*this, c, stage);
}

ConvInput ConvolutionParams::input_of(const ConvolutionGeometry& s, const ConvPhase& phase, int64_t item,
                                      const StepContext& step) const {
  ConvInput input = {.x = x + item * s.in_pixels() * channels, .pixel_stride = channels, .channels = channels};
  const auto sizes = phase.sizes(s);
  for (size_t i = 0; i < kConvMaxAxes; ++i) {
    const ConvPhase::Axis& a = phase.axes[i];
    input.axes[i] = {.in = s.in[i],
                     .out = sizes[i],
                     .taps = a.taps,
                     .step = a.step,
                     .first = a.first,
                     .tap_step = a.tap_step,
                     .size = op.upsample ? s.out[i] : s.in[i],
                     .padding = axes[i].padding};
  }
  if (op.has_leading && item < std::ssize(step.sequences) &&
      step.sequences[static_cast<size_t>(item)].first_position > 0) {
    input.leading = leading.before(step, static_cast<size_t>(item));
    input.num_leading = op.axes[0].pad_before;
    input.leading_axis = kept_axis();
  }
  return input;
}

const float* ConvolutionParams::bias_of_item(int64_t item, float* buffer) const {
  if (!item_bias) return bias;
  const float* own = item_bias + item * out_features;
  if (!bias) return own;
  add({.a = bias, .b = own, .y = buffer, .count = out_features});
  return buffer;
}

void add_leading_stage(LowerContext& c, const ConvolutionParams& p) {
  if (!p.op.has_leading) return;
  auto params = std::make_shared<LeadingParams>();
  params->op = p.op;
  params->channels = p.channels;
  params->kept = p.op.axes[0].pad_before;
  params->axis = p.kept_axis();
  params->leading = p.leading;
  params->tasks = c.workers();
  auto stage = LoweredStage::make<run_keep_leading>(TaskGrid::work_partitions(c.workers(), p.channels), params);
  stage.name = c.op().name + ".leading";
  stage.read(params->x, c.op().inputs[0], Reads::kAll);
  stage.read(c.op().outputs[0], Reads::kAll);
  c.add_stage(std::move(stage));
}

}  // namespace redline
