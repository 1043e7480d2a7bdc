// Convolutions of any number of axes as a task computes them: patches and products of a block after the other, or the
// depthwise kernel. `rows` are items of the batch; workers share the outputs.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu/convolution_lowering.h"
#include "graph/items.h"
#include "kernels/cpu/linear/linear_choice.h"
#include "lab/kernels/kernel_case.h"
#include "lab/kernels/random_matrix.h"
#include "tensor/packed_weight.h"

namespace redline::lab {
namespace {

constexpr int64_t kBlockRows = 256;

/// Returns the attributes of a kind of workload, with its sizes as constants; no axes: another kind.
ConvolutionOpAttrs convolution_of(const KernelWorkload& workload) {
  ConvolutionOpAttrs op;
  const ConvAxis same = {.kernel = 3, .pad_before = 1, .pad_after = 1};
  size_t first = 2;
  if (workload.kernel == "conv_depthwise") {
    op.axes = {same, same};
    op.groups = workload.shape[0];
    first = 1;
  } else if (workload.kernel == "conv_causal") {
    op.axes = {causal_axis(3), same, same};
  } else if (workload.kernel == "conv_1d") {
    op.axes = {{.kernel = 3, .stride = 2, .pad_before = 1, .pad_after = 1}};
  } else if (workload.kernel == "conv_transposed") {
    const ConvAxis twice = {.kernel = 4, .stride = 2, .pad_before = 1, .pad_after = 1};
    op.axes = {twice, twice};
    op.is_transposed = true;
  }
  op.batch = workload.rows;
  for (size_t i = 0; i < op.axes.size(); ++i) {
    op.in_sizes.emplace_back(workload.shape[first + i]);
    op.out_sizes.emplace_back(convolved_size(op.axes[i], op.is_transposed, workload.shape[first + i]));
  }
  return op;
}

class ConvolutionCase : public KernelCase {
 public:
  ConvolutionCase(const CpuKernels& table, ConvolutionOpAttrs op, DType type, int64_t channels, int64_t features)
      : table_(table), op_(std::move(op)), s_(op_, {}), axes_(three_axes(op_)), phases_(conv_phases(op_)), type_(type),
        kernels_(choose_linear(table, type, false)), channels_(channels), features_(features),
        x_(s_.batch * s_.in_pixels() * channels) {
    for (const ConvPhase& phase : phases_) {
      weight_at_.push_back(weight_bytes_);
      const int64_t bytes = is_depthwise() ? phase.num_taps() * channels * dtype_info(type).block_bytes
                                           : packed_bytes(type, features, phase.num_taps() * channels);
      weight_bytes_ += (bytes + 63) / 64 * 64;
    }
  }

  Cost cost() const override {
    const auto weight = static_cast<double>(weight_bytes_);
    const int64_t products = op_.is_transposed ? s_.in_pixels() : s_.pixels();
    const double operations =
        2.0 * static_cast<double>(s_.batch * products * op_.num_taps() * features_ * channels_ / op_.groups);
    return {weight + static_cast<double>(4 * (x_ + outputs())), weight + static_cast<double>(4 * x_), operations,
            type_ == DType::kF32 || is_depthwise() ? "f32" : "f32 f16 bf16"};
  }
  int64_t slot_bytes() const override { return weight_bytes_ + (x_ * 4 + 63) / 64 * 64; }
  int64_t output_bytes() const override { return outputs() * 4; }
  Status allocate(int64_t slots, int64_t outputs, bool) override {
    REDLINE_TRY(inputs_.allocate("a convolution", slots, slot_bytes(), false));
    slots_ = slots;
    return allocate_outputs(outputs);
  }

  void fill(uint64_t seed) override {
    uint64_t state = seed;
    const int64_t rows = op_.is_transposed ? channels_ : features_, taps = op_.num_taps();
    const RandomMatrix matrix(type_, rows, channels_ * features_ / op_.groups / rows * taps, next_random(state));
    weights_.resize(static_cast<size_t>(rows * matrix.view().shape[1]));
    for (int64_t r = 0; r < rows; ++r) matrix.row(r, weights_.data() + r * matrix.view().shape[1]);
    bias_.resize(static_cast<size_t>(features_));
    for (float& b : bias_) b = random_normal(state);
    for (size_t i = 0; i < phases_.size(); ++i)
      pack(phases_[i], static_cast<const uint8_t*>(matrix.view().data), inputs_.first() + weight_at_[i]);
    inputs_.copy_to_variants();
    for (int64_t v = 0; v < kInputVariants; ++v)
      for (int64_t i = 0; i < x_; ++i) x(v)[i] = random_normal(state);
  }
  void spread() override {
    for (int64_t s = kInputVariants; s < slots_; ++s)
      std::memcpy(inputs_.of(s), inputs_.of(s % kInputVariants), static_cast<size_t>(slot_bytes()));
  }

  void run(const KernelRun& run) const override {
    for (size_t i = 0; i < phases_.size(); ++i) {
      const int64_t rows = s_.batch * phases_[i].pixels(s_);
      const int64_t begin = rows * run.worker / run.workers, end = rows * (run.worker + 1) / run.workers;
      if (is_depthwise()) run_depthwise(run, i, begin, end);
      else run_products(run, i, begin, end);
    }
  }

  KernelCheck check(int64_t slot, int64_t output_index, uint64_t seed) const override {
    const auto* y = reinterpret_cast<const float*>(output(output_index));
    KernelCheck result;
    constexpr int64_t kPixels = 48;
    uint64_t state = seed;
    const int64_t rows = s_.batch * s_.pixels();
    for (int64_t j = 0; j < std::min(rows, kPixels); ++j) {
      const int64_t row = rows <= kPixels ? j
                          : j == 0        ? rows - 1
                                          : static_cast<int64_t>(next_random(state) % static_cast<uint64_t>(rows));
      check_row(x(slot), row, y + row * features_, result);
    }
    for (int64_t i = 0; i < outputs(); ++i)
      if (!std::isfinite(y[i])) result.of_bound = INFINITY;
    return result;
  }

 private:
  bool is_depthwise() const { return op_.groups > 1 || (channels_ == 1 && features_ == 1 && !op_.is_transposed); }
  int64_t outputs() const { return s_.batch * s_.pixels() * features_; }
  float* x(int64_t slot) const { return reinterpret_cast<float*>(inputs_.of(slot) + weight_bytes_); }

  ConvInput input(int64_t slot, const ConvPhase& phase, int64_t item) const {
    ConvInput in = {.x = x(slot) + item * s_.in_pixels() * channels_, .pixel_stride = channels_, .channels = channels_};
    const auto sizes = phase.sizes(s_);
    for (size_t i = 0; i < kConvMaxAxes; ++i)
      in.axes[i] = {.in = s_.in[i],
                    .out = sizes[i],
                    .taps = phase.axes[i].taps,
                    .step = phase.axes[i].step,
                    .first = phase.axes[i].first,
                    .tap_step = phase.axes[i].tap_step,
                    .size = s_.in[i]};
    return in;
  }
  /// Returns the kernel's tap that tap j of a phase is.
  int64_t tap_of(const ConvPhase& phase, int64_t j) const {
    const auto& a = phase.axes;
    const int64_t of[] = {j / (a[1].taps * a[2].taps), j / a[2].taps % a[1].taps, j % a[2].taps};
    int64_t tap = 0;
    for (size_t i = 0; i < kConvMaxAxes; ++i) tap = tap * axes_[i].kernel + a[i].tap_first + of[i] * a[i].tap_stride;
    return tap;
  }
  /// Returns the index of a weight in the order of checkpoints.
  int64_t weight_index(int64_t n, int64_t c, int64_t tap) const {
    if (is_depthwise()) return n * op_.num_taps() + tap;
    return (op_.is_transposed ? c * features_ + n : n * channels_ + c) * op_.num_taps() + tap;
  }
  void pack(const ConvPhase& phase, const uint8_t* from, uint8_t* to) const {
    const auto bytes = static_cast<size_t>(dtype_info(type_).block_bytes);
    const int64_t taps = phase.num_taps();
    const auto element = [&](int64_t n, int64_t c, int64_t j) {
      return from + static_cast<size_t>(weight_index(n, c, tap_of(phase, j))) * bytes;
    };
    if (is_depthwise()) {
      for (int64_t j = 0; j < taps; ++j)
        for (int64_t c = 0; c < channels_; ++c, to += bytes) std::memcpy(to, element(c, c, j), bytes);
      return;
    }
    std::vector<uint8_t> rows;
    for (int64_t n = 0; n < features_; ++n)
      for (int64_t c = 0; c < channels_; ++c)
        for (int64_t j = 0; j < taps; ++j) rows.insert(rows.end(), element(n, c, j), element(n, c, j) + bytes);
    pack_row_panels({type_, {features_, channels_, taps}, rows.data()}, 0,
                    (features_ + kRowPanelRows - 1) / kRowPanelRows, to);
  }

  void run_depthwise(const KernelRun& run, size_t i, int64_t first, int64_t last) const {
    const int64_t item_rows = phases_[i].pixels(s_);
    for_items(first, last, item_rows, [&](int64_t item, int64_t begin, int64_t end) {
      ConvDepthwise d = {.input = input(run.slot, phases_[i], item),
                         .weight = inputs_.of(run.slot) + weight_at_[i],
                         .weight_type = type_,
                         .bias = bias_.data(),
                         .y = reinterpret_cast<float*>(output(run.output)) + item * s_.pixels() * channels_,
                         .y_strides = {s_.out[1] * s_.out[2] * channels_, s_.out[2] * channels_, channels_},
                         .residual = nullptr,
                         .row_begin = begin - item * item_rows,
                         .row_end = end - item * item_rows,
                         .c_begin = 0,
                         .c_end = channels_,
                         .scratch = run.scratch};
      ConvPatchesArgs call = {};
      call.depthwise = &d;
      table_.conv_f32(call);
    });
  }

  void run_products(const KernelRun& run, size_t i, int64_t first, int64_t last) const {
    const ConvPhase& phase = phases_[i];
    const int64_t cols = phase.num_taps() * channels_, item_rows = phase.pixels(s_);
    const int chosen = kernels_.layouts.index_for_rows(s_.batch * s_.pixels());
    const ActivationLayout form = kernels_.layouts.at[chosen].layout;
    const int64_t patch_bytes = (activation_layout_bytes(form, kBlockRows, cols) + 63) / 64 * 64;
    thread_local std::shared_ptr<uint8_t> buffer;
    thread_local int64_t buffer_bytes = 0;
    if (const int64_t needed = patch_bytes + kBlockRows * features_ * 4; needed > buffer_bytes) {
      buffer = map_bytes(needed);
      buffer_bytes = needed;
    }
    auto* sums = reinterpret_cast<float*>(buffer.get() + patch_bytes);
    auto* y = reinterpret_cast<float*>(output(run.output));
    const bool has_one_phase = phases_.size() == 1;
    for (int64_t begin = first, end; begin < last; begin = end) {
      end = std::min(begin + kBlockRows, last);
      for_items(begin, end, item_rows, [&](int64_t item, int64_t row, int64_t stop) {
        ConvGather g = {.input = input(run.slot, phase, item), .scratch = run.scratch};
        ConvPatchesArgs args = {};
        args.gather = &g;
        args.row_begin = row - item * item_rows;
        args.row_end = stop - item * item_rows;
        args.form = form;
        args.out_row = row - begin;
        args.out = buffer.get();
        table_.conv_patches(args);
      });
      kernels_.run[chosen]({.x = buffer.get(),
                            .x_stride = cols,
                            .rows = end - begin,
                            .weight = inputs_.of(run.slot) + weight_at_[i],
                            .out_features = features_,
                            .in_features = cols,
                            .n_begin = 0,
                            .n_end = features_,
                            .bias = bias_.data(),
                            .residual = nullptr,
                            .y = has_one_phase ? y + begin * features_ : sums,
                            .y_stride = features_,
                            .scratch = run.scratch});
      for (int64_t row = begin; !has_one_phase && row < end; ++row)
        std::memcpy(y + phase.output_row(s_, row) * features_, sums + (row - begin) * features_,
                    static_cast<size_t>(features_) * sizeof(float));
    }
  }

  /// Checks all channels of an output against the definition.
  void check_row(const float* x, int64_t row, const float* y, KernelCheck& result) const {
    const int64_t item = row / s_.pixels(), taps = op_.num_taps();
    const int64_t at[] = {row % s_.pixels() / (s_.out[1] * s_.out[2]), row / s_.out[2] % s_.out[1], row % s_.out[2]};
    std::vector<const float*> pixels(static_cast<size_t>(taps), nullptr);
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t j[] = {tap / (axes_[1].kernel * axes_[2].kernel), tap / axes_[2].kernel % axes_[1].kernel,
                           tap % axes_[2].kernel};
      int64_t pixel = 0;
      bool is_inside = true;
      for (size_t i = 0; i < kConvMaxAxes; ++i) {
        int64_t position = at[i] * axes_[i].stride + j[i] - axes_[i].pad_before;
        if (op_.is_transposed) {
          position = at[i] + axes_[i].pad_before - j[i];
          is_inside &= position % axes_[i].stride == 0;
          position /= axes_[i].stride;
        }
        is_inside &= position >= 0 && position < s_.in[i];
        pixel = pixel * s_.in[i] + position;
      }
      if (is_inside) pixels[static_cast<size_t>(tap)] = x + (item * s_.in_pixels() + pixel) * channels_;
    }
    const int64_t in = channels_ / op_.groups;
    const bool rounds = !is_depthwise() && type_ != DType::kF32;
    for (int64_t n = 0; n < features_; ++n) {
      double sum = double{bias_[static_cast<size_t>(n)]}, products = std::abs(sum);
      for (int64_t tap = 0; tap < taps; ++tap)
        for (int64_t c = 0; pixels[static_cast<size_t>(tap)] != nullptr && c < in; ++c) {
          const double product = double{pixels[static_cast<size_t>(tap)][is_depthwise() ? n : c]} *
                                 double{weights_[static_cast<size_t>(weight_index(n, c, tap))]};
          sum += product;
          products += std::abs(product);
        }
      // Each product and each sum is rounded; with a weight of 16 bits also x, and the weight where it is float16.
      const double bound = products * ((rounds ? 0x1p-7 : 0) + 2 * static_cast<double>(in * taps + 2) * 0x1p-24 * 1.01);
      result.add(std::abs(double{y[n]} - sum), bound);
    }
  }

  const CpuKernels& table_;
  const ConvolutionOpAttrs op_;
  const ConvolutionGeometry s_;
  const std::array<ConvAxis, kConvMaxAxes> axes_;
  const std::vector<ConvPhase> phases_;
  const DType type_;
  const LinearKernels kernels_;
  const int64_t channels_, features_;
  const int64_t x_;  ///< elements of the input
  int64_t weight_bytes_ = 0, slots_ = 0;
  std::vector<int64_t> weight_at_;  ///< [phases] offsets in a slot
  std::vector<float> weights_, bias_;
  SlotCopies inputs_;  ///< the weights of the phases, then x
};

constexpr KernelKind kConvolutionKinds[] = {
    {"conv_depthwise", "CxHxW", "f32, f16 or bf16", "3x3, one group for each channel; rows are items of a batch"},
    {"conv_causal", "NxCxFxHxW", "f32, f16 or bf16", "C to N channels, 3x3x3 over F frames and those before"},
    {"conv_1d", "NxCxL", "f32, f16 or bf16", "C to N channels, 3 taps with stride 2 over a length of L"},
    {"conv_transposed", "NxCxHxW", "f32, f16 or bf16", "C to N channels, transposed 4x4 with stride 2"},
};

}  // namespace

std::span<const KernelKind> convolution_kernel_kinds() { return kConvolutionKinds; }

Result<std::unique_ptr<KernelCase>> make_convolution_case(const KernelWorkload& workload, const CpuKernels& table) {
  if (!workload.kernel.starts_with("conv_")) return std::unique_ptr<KernelCase>();
  REDLINE_ASSIGN(const DType type, dtype_from_name(workload.type));
  if (type != DType::kF32 && type != DType::kF16 && type != DType::kBF16)
    return unsupported("{} has weights of f32, f16 and bf16, not \"{}\"", workload.kernel, workload.type);
  ConvolutionOpAttrs op = convolution_of(workload);
  double pixels =
      static_cast<double>(workload.rows) * static_cast<double>(std::max(workload.shape[0], workload.shape[1]));
  for (const Dim& size : op.out_sizes) pixels *= static_cast<double>(size.constant());
  if (pixels > 0x1p31) return invalid_argument("{}: more than 2^31 elements of the output", workload.kernel);
  const bool is_depthwise = op.groups > 1 || workload.kernel == "conv_depthwise";
  if (!table.conv_patches || (is_depthwise && !table.conv_f32) || !table.linear[static_cast<size_t>(type)])
    return unsupported("this instruction set has no kernel {}", kernel_entry_name(workload));
  const int64_t features = workload.shape[0], channels = workload.shape[is_depthwise ? 0 : 1];
  return std::unique_ptr<KernelCase>(std::make_unique<ConvolutionCase>(table, std::move(op), type, channels, features));
}

}  // namespace redline::lab
