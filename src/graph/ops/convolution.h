// Convolution in one, two and three dimensions.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "graph/adapters.h"
#include "graph/ops/group_norm.h"
#include "tensor/conv_padding.h"

namespace redline {

/// A batch of feature maps in one to three dimensions, stored as rows: the last axis is fastest, columns are channels
/// (NLC, NHWC, NDHWC). Position (d, h, w) of item i is row ((i * depth + d) * height + h) * width + w.
struct FeatureGrid {
  Value value;             ///< [batch * product of sizes, channels]  f32
  std::vector<Dim> sizes;  ///< outermost first: {length}, {height, width} or {frames, height, width}
};

/// One axis of a convolution.
struct ConvAxis {
  int64_t kernel = 1, stride = 1, dilation = 1;
  /// Padding of the input. For a transposed convolution the number of outputs that are cut off at both ends, like
  /// `padding` of PyTorch's ConvTranspose.
  int64_t pad_before = 0, pad_after = 0;
  ConvPadding padding = ConvPadding::kZeros;
  int64_t output_padding = 0;  ///< for transposed convolutions: additional outputs at the end, less than the stride

  /// Number of positions between the first and the last tap.
  int64_t reach() const { return dilation * (kernel - 1); }
  friend bool operator==(const ConvAxis&, const ConvAxis&) = default;
};

/// Returns an axis that is padded before the first position only, so that an output depends on no later input and n
/// inputs, a multiple of the stride, give n / stride outputs. For clips in chunks, see convolution().
ConvAxis causal_axis(int64_t kernel, int64_t stride = 1, int64_t dilation = 1,
                     ConvPadding padding = ConvPadding::kZeros);

struct ConvolutionAttrs {
  std::vector<ConvAxis> axes;  ///< one for each of FeatureGrid::sizes
  int64_t groups = 1;          ///< divides input and output channels; group g reads and writes the g-th part of them
  bool is_transposed = false;
  /// First resizes all axes to the output's sizes by nearest neighbour. The stride is 1, and the padding of an axis is
  /// its reach() in sum.
  bool upsample = false;
};

/// Returns the size of an axis of the output, 0 if the input is too small. (A size with `upsample` is chosen instead.)
///   convolution   floor((in + pad_before + pad_after - dilation (kernel - 1) - 1) / stride) + 1
///   transposed    (in - 1) stride - pad_before - pad_after + dilation (kernel - 1) + 1 + output_padding
int64_t convolved_size(const ConvAxis& axis, bool is_transposed, int64_t in);
/// Returns the same for a symbolic size; nullopt if the result is no polynomial (a symbol divided by a stride). A
/// polynomial cannot stop at 0, so the result is valid only for inputs that make it 0 or more.
std::optional<Dim> convolved_size(const ConvAxis& axis, bool is_transposed, const Dim& in);

/// Optional inputs of a convolution.
struct ConvolutionInputs {
  Value bias;       ///< [out_channels]
  Value item_bias;  ///< [batch, out_channels]  f32: the time embedding added to each item
  /// A kRecurrent state with the last axes[0].pad_before positions of the first axis, [positions, the other axes,
  /// channels]: a sequence is then computed in chunks along this axis.
  Value leading;
};

/// Convolution (cross-correlation) of every item of a batch. With one axis, position t and group g:
///   y[i, t, n] = sum_{j, c} x[i, stride t + dilation j - pad_before, g C + c] w[n, c, j] + bias[n] (+ item_bias[i, n])
///   transposed: y[i, stride t + dilation j - pad_before, n] += x[i, t, c] w[c, n, j] for all t, j, c; then the biases
///
/// x        f32; sizes of the axes as in `x.sizes`
/// weight   [out_channels, in_channels / groups, kernel of each axis]; transposed [in_channels, out_channels / groups,
///          kernel of each axis]: the order of checkpoints. Plain types; block types where a row is whole blocks and
///          the convolution is neither transposed nor one group per channel
/// out      sizes of the output; may be empty if convolved_size() gives them. With `upsample` any sizes
///
/// Chunks. With a `leading` state item i of the batch is sequence i of the step, and the state holds the positions of
/// the first axis before the chunk. A sequence begins (SequenceRows::first_position is 0) with the padding of the axis,
/// kZeros or kReplicate. The first axis has pad_after 0 and pad_before from dilation (kernel - 1) + 1 - stride to
/// dilation (kernel - 1). All chunks except the last are multiples of its stride, and the other axes have the same
/// sizes in all chunks. The state has room for the largest sizes. The results then have the bits of the whole sequence.
///
/// A kernel of 1 without stride and padding is `linear`. The weight is packed as [out_channels, taps * channels]; back
/// ends multiply patches with the kernels and activation layouts of `linear`, or compute regions directly
/// (kernels/cpu/convolution/conv2d.h, kernels/cpu/convolution/convolution.h).
/// invalid_argument, as the result of the graph: shapes, types or attributes other than the above.
FeatureGrid convolution(GraphBuilder& g, const FeatureGrid& x, const Dim& batch, Value weight, ConvolutionAttrs attrs,
                        const ConvolutionInputs& inputs = {}, std::vector<Dim> out = {});

/// Attributes of kConvolution. Inputs: x, weight, then the optional inputs whose `has_` flag is set, in this order.
struct ConvolutionOpAttrs : ConvolutionAttrs {
  Dim batch;
  std::vector<Dim> in_sizes, out_sizes;
  bool has_bias = false, has_item_bias = false, has_leading = false;
  /// The last input, of the output's shape, is added to the output; set by passes/fuse_residual.
  bool has_residual = false;
  /// If true, x is group-normalized first. The op then has three more inputs: the statistics of x, the norm's weight
  /// and its bias. Set by passes/fuse_group_norm.
  bool has_norm = false;
  GroupNormAttrs norm;
  std::shared_ptr<AdapterSite> adapters;  ///< added to the output; nullptr: the op has no site

  int64_t num_taps() const;
};

/// Indices of the optional inputs; 0: absent.
struct ConvolutionInputIndex {
  size_t bias = 0, item_bias = 0, leading = 0, residual = 0;
  size_t norm = 0;  ///< index of the statistics; weight and bias of the norm follow

  explicit ConvolutionInputIndex(const ConvolutionOpAttrs& a) {
    size_t next = 2;
    if (a.has_bias) bias = next++;
    if (a.has_item_bias) item_bias = next++;
    if (a.has_leading) leading = next++;
    if (a.has_residual) residual = next++;
    if (a.has_norm) norm = next;
  }
};

inline constexpr int kConvMaxAxes = 3;

/// Sizes of a convolution in one step, always with three axes. If the convolution has fewer, the missing ones come
/// first and have size 1.
struct ConvolutionGeometry {
  int64_t batch = 0;
  std::array<int64_t, kConvMaxAxes> in = {1, 1, 1}, out = {1, 1, 1};

  ConvolutionGeometry(const ConvolutionOpAttrs& a, const SymbolValues& sizes);
  int64_t pixels() const { return out[0] * out[1] * out[2]; }
  int64_t in_pixels() const { return in[0] * in[1] * in[2]; }
};
/// Returns the three axes of ConvolutionGeometry; axes that the convolution lacks have a kernel of 1.
std::array<ConvAxis, kConvMaxAxes> three_axes(const ConvolutionAttrs& attrs);

/// A convolution with two axes of equal kernel, stride and padding with zeros, without groups, dilation, transposition
/// and state: the kind that image models consist of, which has kernels of its own. A third axis in front with a kernel
/// of 1 is part of the batch.
struct SquareConv2d {
  int64_t kernel, stride, pad_before;
  bool upsample;
  Dim batch, in_height, in_width, out_height, out_width;

  static std::optional<SquareConv2d> of(const ConvolutionOpAttrs& attrs);
};

/// Returns true if the op may have an adapter site: a SquareConv2d of two axes with a weight of a plain type.
bool may_have_adapters(const Graph& graph, const Op& convolution);

extern const OpDef kConvolution;

}  // namespace redline
