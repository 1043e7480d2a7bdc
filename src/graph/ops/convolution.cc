#include "graph/ops/convolution.h"

#include <algorithm>

#include "graph/ops/linear.h"
#include "graph/reference.h"

namespace redline {
namespace {

using std::array;

/// Returns the reason why an axis is invalid; "" if it is valid.
std::string wrong_axis(const ConvAxis& a, const ConvolutionAttrs& attrs) {
  if (a.kernel < 1 || a.stride < 1 || a.dilation < 1 || a.pad_before < 0 || a.pad_after < 0)
    return fmt::format("kernel {}, stride {}, dilation {}, padding {} and {} are not valid sizes", a.kernel, a.stride,
                       a.dilation, a.pad_before, a.pad_after);
  if (attrs.upsample && (a.stride != 1 || attrs.is_transposed))
    return fmt::format("an upsampled input cannot have stride {}{}", a.stride,
                       attrs.is_transposed ? " and be transposed" : "");
  if (attrs.upsample && a.pad_before + a.pad_after != a.reach())
    return fmt::format("an upsampled input keeps its size: a kernel of {} needs a padding of {} in sum, not {} and {}",
                       a.kernel, a.reach(), a.pad_before, a.pad_after);
  if (attrs.is_transposed && a.padding != ConvPadding::kZeros) return "a transposed convolution pads with zeros only";
  if (a.output_padding < 0 || a.output_padding >= (attrs.is_transposed ? a.stride : 1))
    return fmt::format("an output padding of {} needs a transposed convolution and a larger stride than {}",
                       a.output_padding, a.stride);
  return "";
}

Status check_weight(const ValueInfo& w, const Dim& channels, const ConvolutionAttrs& attrs) {
  const std::string in = channels.to_string();
  std::string expected = attrs.is_transposed ? in + ", out" : "out, " + in;
  if (attrs.groups > 1) expected += fmt::format(" / {} groups", attrs.groups);
  Shape shape = w.shape.size() < 2 ? Shape{0, 0} : Shape{w.shape[0], w.shape[1]};
  for (const ConvAxis& a : attrs.axes) {
    expected += fmt::format(", {}", a.kernel);
    shape.emplace_back(a.kernel);
  }
  const Dim given = shape[attrs.is_transposed ? 0 : 1] * Dim(attrs.is_transposed ? 1 : attrs.groups);
  if (w.kind != ValueKind::kWeight || !(w.shape == shape) || !(given == channels) ||
      shape[0].constant() % attrs.groups != 0)
    return invalid_argument("convolution: {} is {} {}, expected [{}]", w.name, dtype_info(w.dtype).name,
                            to_string(w.shape), expected);
  const DTypeInfo& type = dtype_info(w.dtype);
  if (!type.is_block && type.row_bytes == 0) return {};
  const int64_t row = (num_elements(w.shape).constant()) / std::max<int64_t>(1, w.shape[0].constant());
  if (attrs.is_transposed || type.row_bytes > 0 || row % type.block_elements != 0)
    return invalid_argument(
        "convolution: {} is {} {}; a weight is of this type only where its rows are whole blocks of {} and the "
        "convolution is not transposed. Convert it to bf16",
        w.name, type.name, to_string(w.shape), type.block_elements);
  return {};
}

Status check_leading(const ValueInfo& s, const ConvolutionAttrs& attrs) {
  const ConvAxis& a = attrs.axes[0];
  if (s.kind != ValueKind::kState || s.state.kind != StateKind::kRecurrent)
    return invalid_argument("convolution: {} is no recurrent state", s.name);
  if (attrs.is_transposed || attrs.upsample || a.pad_after != 0 || a.pad_before > a.reach() ||
      a.pad_before < a.reach() + 1 - a.stride)
    return invalid_argument(
        "convolution: chunks need a first axis that is padded by {} to {} before and 0 after, neither transposed nor "
        "upsampled; it is padded by {} and {}",
        std::max<int64_t>(0, a.reach() + 1 - a.stride), a.reach(), a.pad_before, a.pad_after);
  if (a.padding != ConvPadding::kZeros && a.padding != ConvPadding::kReplicate)
    return invalid_argument(
        "convolution: the padding of a sequence in chunks begins with zeros or with its first position repeated");
  return {};
}

/// Sets the sizes of the output if the caller gives none, else checks them.
Status set_sizes(const ConvolutionAttrs& attrs, const std::vector<Dim>& in, std::vector<Dim>& out) {
  const bool are_given = !out.empty();
  if (are_given && out.size() != in.size())
    return invalid_argument("convolution: {} output sizes for {} axes", out.size(), in.size());
  out.resize(in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const std::optional<Dim> size =
        attrs.upsample ? std::nullopt : convolved_size(attrs.axes[i], attrs.is_transposed, in[i]);
    if (!size && !are_given)
      return invalid_argument("convolution: the size of axis {} is no polynomial of {}; pass the sizes of the output",
                              i, in[i].to_string());
    if (size && are_given && !(*size == out[i]))
      return invalid_argument("convolution: axis {} of size {} becomes {}, not {}", i, in[i].to_string(),
                              size->to_string(), out[i].to_string());
    if (size) out[i] = *size;
  }
  return {};
}

bool is_product(const ConvolutionAttrs& attrs, const std::vector<Dim>& in, const std::vector<Dim>& out) {
  return attrs.groups == 1 && !attrs.is_transposed && in == out &&
         std::all_of(attrs.axes.begin(), attrs.axes.end(), [](const ConvAxis& a) {
           return a.kernel == 1 && a.stride == 1 && a.pad_before == 0 && a.pad_after == 0;
         });
}

Status check_inputs(const GraphBuilder& g, const FeatureGrid& x, const Dim& batch, const ValueInfo& w,
                    const ConvolutionAttrs& attrs, const Dim& channels, const ConvolutionInputs& inputs) {
  const ValueInfo& xi = g.info(x.value);
  const Dim rows = batch * num_elements(x.sizes);
  if (x.sizes.empty() || x.sizes.size() > kConvMaxAxes || x.sizes.size() != attrs.axes.size())
    return invalid_argument("convolution: {} sizes and {} axes; expected 1 to {} of both", x.sizes.size(),
                            attrs.axes.size(), kConvMaxAxes);
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || !(xi.shape[0] == rows) || !xi.shape[1].is_constant())
    return invalid_argument("convolution: x is {}, expected [{}, channels]", to_string(xi.shape), rows.to_string());
  for (const ConvAxis& axis : attrs.axes)
    if (const std::string wrong = wrong_axis(axis, attrs); !wrong.empty())
      return invalid_argument("convolution: {}", wrong);
  if (attrs.groups < 1 || xi.shape[1].constant() % attrs.groups != 0)
    return invalid_argument("convolution: {} channels in {} groups", xi.shape[1].constant(), attrs.groups);
  REDLINE_TRY(check_weight(w, xi.shape[1], attrs));
  if (inputs.bias.valid() && !(g.info(inputs.bias).shape == Shape{channels}))
    return invalid_argument("convolution: {} is {}, expected [{}]", g.info(inputs.bias).name,
                            to_string(g.info(inputs.bias).shape), channels.to_string());
  if (inputs.item_bias.valid() && !(g.info(inputs.item_bias).shape == Shape{batch, channels}))
    return invalid_argument("convolution: the items' bias is {}, expected {}",
                            to_string(g.info(inputs.item_bias).shape), to_string({batch, channels}));
  if (inputs.leading.valid()) REDLINE_TRY(check_leading(g.info(inputs.leading), attrs));
  return {};
}

}  // namespace

ConvAxis causal_axis(int64_t kernel, int64_t stride, int64_t dilation, ConvPadding padding) {
  ConvAxis axis = {.kernel = kernel, .stride = stride, .dilation = dilation, .padding = padding};
  axis.pad_before = std::max<int64_t>(0, axis.reach() + 1 - stride);
  return axis;
}

int64_t convolved_size(const ConvAxis& a, bool is_transposed, int64_t in) {
  const int64_t pads = a.pad_before + a.pad_after;
  if (is_transposed) {
    const int64_t size = (in - 1) * a.stride - pads + a.reach() + 1 + a.output_padding;
    return in > 0 && size > 0 ? size : 0;
  }
  const int64_t room = in + pads - a.reach() - 1;
  return room < 0 ? 0 : room / a.stride + 1;
}

std::optional<Dim> convolved_size(const ConvAxis& a, bool is_transposed, const Dim& in) {
  if (in.is_constant()) return Dim(convolved_size(a, is_transposed, in.constant()));
  const int64_t pads = a.pad_before + a.pad_after;
  if (is_transposed) return in * Dim(a.stride) + Dim(a.reach() + 1 + a.output_padding - pads - a.stride);
  if (a.stride == 1) return in + Dim(pads - a.reach());
  return std::nullopt;
}

FeatureGrid convolution(GraphBuilder& g, const FeatureGrid& x, const Dim& batch, Value weight, ConvolutionAttrs attrs,
                        const ConvolutionInputs& inputs, std::vector<Dim> out) {
  if (!x.value.valid() || !weight.valid()) return {};
  const ValueInfo& w = g.info(weight);
  Dim channels = w.shape.size() < 2 ? Dim(0) : w.shape[attrs.is_transposed ? 1 : 0];
  if (attrs.is_transposed) channels = channels * Dim(attrs.groups);
  Status status = check_inputs(g, x, batch, w, attrs, channels, inputs);
  if (status.ok()) status = set_sizes(attrs, x.sizes, out);
  if (!status.ok()) return {g.fail(std::move(status)), {}};

  if (is_product(attrs, x.sizes, out) && !inputs.item_bias.valid() && !inputs.leading.valid()) {
    WeightSource matrix = w.weight;
    matrix.view.shape.resize(2);
    return {linear(g, x.value, g.weight(w.name, std::move(matrix)), inputs.bias), std::move(out)};
  }

  ConvolutionOpAttrs op;
  static_cast<ConvolutionAttrs&>(op) = std::move(attrs);
  op.batch = batch;
  op.in_sizes = x.sizes;
  op.out_sizes = out;
  op.has_bias = inputs.bias.valid();
  op.has_item_bias = inputs.item_bias.valid();
  op.has_leading = inputs.leading.valid();
  std::vector<Value> all = {x.value, weight};
  for (const Value input : {inputs.bias, inputs.item_bias, inputs.leading})
    if (input.valid()) all.push_back(input);
  const Dim rows = batch * num_elements(out);
  return {g.add(kConvolution, all, DType::kF32, {rows, channels}, std::move(op)), std::move(out)};
}

int64_t ConvolutionOpAttrs::num_taps() const {
  int64_t taps = 1;
  for (const ConvAxis& axis : axes) taps *= axis.kernel;
  return taps;
}

ConvolutionGeometry::ConvolutionGeometry(const ConvolutionOpAttrs& a, const SymbolValues& sizes)
    : batch(a.batch.eval(sizes)) {
  const size_t first = kConvMaxAxes - a.axes.size();
  for (size_t i = 0; i < a.axes.size(); ++i) {
    in[first + i] = a.in_sizes[i].eval(sizes);
    out[first + i] = a.out_sizes[i].eval(sizes);
  }
}

array<ConvAxis, kConvMaxAxes> three_axes(const ConvolutionAttrs& attrs) {
  array<ConvAxis, kConvMaxAxes> axes;
  std::copy(attrs.axes.begin(), attrs.axes.end(), axes.end() - static_cast<std::ptrdiff_t>(attrs.axes.size()));
  return axes;
}

std::optional<SquareConv2d> SquareConv2d::of(const ConvolutionOpAttrs& a) {
  if (a.axes.size() < 2 || a.is_transposed || a.groups != 1 || a.has_leading) return std::nullopt;
  Dim batch = a.batch;
  if (a.axes.size() == 3) {  // every frame is an item; that is no item of a norm, a bias or an adapter
    const ConvAxis& frames = a.axes[0];
    if (frames.kernel != 1 || frames.stride != 1 || !(a.in_sizes[0] == a.out_sizes[0]) || frames.pad_before != 0 ||
        a.has_item_bias || a.has_norm || a.adapters)
      return std::nullopt;
    batch = batch * a.in_sizes[0];
  }
  const size_t last = a.axes.size() - 1;
  const ConvAxis &y = a.axes[last - 1], &x = a.axes[last];
  if (y.kernel != x.kernel || y.stride != x.stride || y.pad_before != x.pad_before || y.dilation != 1 ||
      x.dilation != 1 || y.padding != ConvPadding::kZeros || x.padding != ConvPadding::kZeros)
    return std::nullopt;
  return SquareConv2d{y.kernel,
                      y.stride,
                      y.pad_before,
                      a.upsample,
                      batch,
                      a.in_sizes[last - 1],
                      a.in_sizes[last],
                      a.out_sizes[last - 1],
                      a.out_sizes[last]};
}

bool may_have_adapters(const Graph& graph, const Op& convolution) {
  const auto& attrs = std::any_cast<const ConvolutionOpAttrs&>(convolution.attrs);
  return !dtype_info(graph.value(convolution.inputs[1]).dtype).is_block && attrs.axes.size() == 2 &&
         SquareConv2d::of(attrs).has_value();
}

namespace {

/// Returns the number of pixels at one position of axis `first`.
int64_t places_of(const ConvolutionGeometry& s, size_t first) {
  int64_t places = 1;
  for (size_t i = first + 1; i < kConvMaxAxes; ++i) places *= s.in[i];
  return places;
}

/// The input that the reference reads: x, normalized if the op has a norm, preceded by the stored positions before the
/// chunk.
class ReferenceInput {
 public:
  ReferenceInput(const ReferenceContext& c, const ConvolutionOpAttrs& a, const ConvolutionGeometry& s,
                 const HostTensor& x)
      : c_(c), a_(a), s_(s), x_(x), axes_(three_axes(a)), leading_(ConvolutionInputIndex(a).leading) {}

  /// Returns the channels at a position of an item, which may lie outside of the input; nullptr: zeros.
  const double* at(int64_t item, array<int64_t, kConvMaxAxes> position) const {
    const size_t first = kConvMaxAxes - a_.axes.size();
    int64_t pixel = 0;
    bool is_before = false;
    for (size_t i = 0; i < kConvMaxAxes; ++i) {
      const int64_t size = a_.upsample ? s_.out[i] : s_.in[i];
      int64_t index;
      if (i == first && position[i] < 0 && has_begun(item)) {
        is_before = true;
        index = axes_[i].pad_before + position[i];
      } else {
        index = padded_index(position[i], s_.in[i] > 0 ? size : 0, axes_[i].padding);
        if (index < 0) return nullptr;
        if (a_.upsample) index = index * s_.in[i] / size;
      }
      pixel = pixel * s_.in[i] + index;
    }
    if (is_before) return c_.state(leading_).before(static_cast<size_t>(item)) + pixel * x_.cols();
    return x_.row(item * s_.in_pixels() + pixel);
  }
  bool has_begun(int64_t item) const {
    return a_.has_leading && c_.sequences()[static_cast<size_t>(item)].first_position > 0;
  }
  /// Stores the last positions of the chunk.
  void keep() const {
    const size_t first = kConvMaxAxes - a_.axes.size();
    const ReferenceState state = c_.state(leading_);
    const int64_t places = places_of(s_, first), kept = axes_[first].pad_before;
    for (int64_t item = 0; item < s_.batch; ++item) {
      std::vector<double> values;
      for (int64_t i = 0; i < kept; ++i)
        for (int64_t place = 0; place < places; ++place) {
          array<int64_t, kConvMaxAxes> position = {};
          int64_t rest = place;
          for (size_t axis = kConvMaxAxes - 1; axis > first; rest /= s_.in[axis--]) position[axis] = rest % s_.in[axis];
          position[first] = s_.in[first] - kept + i;
          const double* channels = at(item, position);
          for (int64_t c = 0; c < x_.cols(); ++c) values.push_back(channels == nullptr ? 0 : channels[c]);
        }
      std::copy(values.begin(), values.end(), state.after(static_cast<size_t>(item)));
    }
  }

 private:
  const ReferenceContext& c_;
  const ConvolutionOpAttrs& a_;
  const ConvolutionGeometry& s_;
  const HostTensor& x_;
  array<ConvAxis, kConvMaxAxes> axes_;
  size_t leading_;
};

/// Calls body(tap, its position in the kernel) for each tap, in the order of the weight.
template <class Body>
void for_taps(const array<ConvAxis, kConvMaxAxes>& axes, const Body& body) {
  int64_t tap = 0;
  for (int64_t i = 0; i < axes[0].kernel; ++i)
    for (int64_t j = 0; j < axes[1].kernel; ++j)
      for (int64_t k = 0; k < axes[2].kernel; ++k) body(tap++, array<int64_t, kConvMaxAxes>{i, j, k});
}

array<int64_t, kConvMaxAxes> position_of(int64_t pixel, const array<int64_t, kConvMaxAxes>& sizes) {
  return {pixel / (sizes[1] * sizes[2]), pixel / sizes[2] % sizes[1], pixel % sizes[2]};
}

/// Adds the products of a transposed convolution: every input to all outputs that it reaches.
void add_transposed(const ConvolutionOpAttrs& a, const ConvolutionGeometry& s, const HostTensor& x,
                    const HostTensor& weight, HostTensor& y) {
  const auto axes = three_axes(a);
  const int64_t taps = a.num_taps(), in = x.cols() / a.groups, out = y.cols() / a.groups;
  for (int64_t row = 0; row < x.rows(); ++row)
    for_taps(axes, [&](int64_t tap, const array<int64_t, kConvMaxAxes>& at) {
      const auto from = position_of(row % s.in_pixels(), s.in);
      int64_t pixel = 0;
      for (size_t i = 0; i < kConvMaxAxes; ++i) {
        const int64_t to = from[i] * axes[i].stride + at[i] * axes[i].dilation - axes[i].pad_before;
        if (to < 0 || to >= s.out[i]) return;
        pixel = pixel * s.out[i] + to;
      }
      double* sums = y.row(row / s.in_pixels() * s.pixels() + pixel);
      for (int64_t c = 0; c < x.cols(); ++c)
        for (int64_t n = 0; n < out; ++n) sums[c / in * out + n] += x.row(row)[c] * weight.row(c)[n * taps + tap];
    });
}

Status check_chunks(const ReferenceContext& c, const ConvolutionOpAttrs& a, const ConvolutionGeometry& s) {
  const ConvolutionInputIndex at(a);
  if (static_cast<int64_t>(c.sequences().size()) != s.batch)
    return invalid_argument("convolution: a step of {} sequences for a batch of {}", c.sequences().size(), s.batch);
  const size_t first = kConvMaxAxes - a.axes.size();
  const int64_t places = places_of(s, first);
  const int64_t elements = a.axes[0].pad_before * places * c.in(0).cols();
  if (elements > c.state(at.leading).attrs().elements)
    return invalid_argument("convolution: a state of {} elements for {} positions of {} x {} channels; {} are needed",
                            c.state(at.leading).attrs().elements, a.axes[0].pad_before, places, c.in(0).cols(),
                            elements);
  return {};
}

Status convolution_reference(ReferenceContext& c) {
  const auto& a = c.attrs<ConvolutionOpAttrs>();
  const ConvolutionGeometry s(a, c.sizes());
  const ConvolutionInputIndex at(a);
  HostTensor normalized;
  if (at.norm) {
    normalized = c.in(0);
    group_norm_reference(c.in(0), s.batch, s.in_pixels(), a.norm, c.in(at.norm + 1), c.in(at.norm + 2), normalized);
  }
  if (at.leading) REDLINE_TRY(check_chunks(c, a, s));
  const HostTensor &x = at.norm ? normalized : c.in(0), &weight = c.in(1);
  const ReferenceInput input(c, a, s, x);
  const auto axes = three_axes(a);
  const int64_t taps = a.num_taps(), in = x.cols() / a.groups, out = std::max<int64_t>(1, c.out().cols() / a.groups);
  if (a.is_transposed) add_transposed(a, s, x, weight, c.out());
  for (int64_t row = 0; row < c.out().rows(); ++row) {
    const int64_t item = row / s.pixels();
    const auto pixel = position_of(row % s.pixels(), s.out);
    /// Returns the product of one filter [in, taps] with the channels from `first` on.
    const auto product_with = [&](const auto* filter, int64_t first) {
      double sum = 0;
      for_taps(axes, [&](int64_t tap, const array<int64_t, kConvMaxAxes>& of) {
        array<int64_t, kConvMaxAxes> position = {};
        for (size_t i = 0; i < kConvMaxAxes; ++i)
          position[i] = pixel[i] * axes[i].stride + of[i] * axes[i].dilation - axes[i].pad_before;
        const double* channels = input.at(item, position);
        for (int64_t k = 0; channels != nullptr && k < in; ++k)
          sum += channels[first + k] * static_cast<double>(filter[k * taps + tap]);
      });
      return sum;
    };
    for (int64_t n = 0; n < c.out().cols(); ++n) {
      double sum = a.is_transposed ? c.out().row(row)[n] : product_with(weight.row(n), n / out * in);
      if (at.bias) sum += c.in(at.bias).data[static_cast<size_t>(n)];
      if (at.item_bias) sum += c.in(at.item_bias).row(item)[n];
      if (at.residual) sum += c.in(at.residual).row(row)[n];
      c.out().row(row)[n] = sum;
    }
    if (!a.adapters) continue;
    for_adapted_rows(c.adapters(), *a.adapters, c.sizes(), row, row + 1, [&](const AdaptedRows& rows) {
      for (const WeightedAdapter& each : rows.adapters) {
        const AdapterFactors* f = factors_at(each, *a.adapters);
        for (int64_t n = 0; f != nullptr && f->bias != nullptr && n < c.out().cols(); ++n)
          c.out().row(row)[n] +=
              static_cast<double>(f->scale) * static_cast<double>(each.weight) * static_cast<double>(f->bias[n]);
        for (int64_t r = 0; f != nullptr && r < f->rank; ++r) {
          const double t = product_with(f->plain_down + r * in * taps, 0) * static_cast<double>(f->scale) *
                           static_cast<double>(each.weight);
          for (int64_t n = 0; n < c.out().cols(); ++n)
            c.out().row(row)[n] += t * static_cast<double>(f->plain_up[n * f->rank + r]);
        }
      }
    });
  }
  if (at.leading) input.keep();
  return {};
}

/// Returns an attribute of all axes as text, such as "3x3" or "1x3x3".
template <class Get>
std::string by_axis(const ConvolutionAttrs& a, const Get& get) {
  std::string text;
  for (const ConvAxis& axis : a.axes) text += fmt::format("{}{}", text.empty() ? "" : "x", get(axis));
  return text;
}

std::string describe_convolution(const std::any& any) {
  const auto& a = std::any_cast<const ConvolutionOpAttrs&>(any);
  const auto differs = [&](auto get, int64_t from) {
    return std::any_of(a.axes.begin(), a.axes.end(), [&](const ConvAxis& axis) { return get(axis) != from; });
  };
  const auto stride = [](const ConvAxis& axis) { return axis.stride; };
  const auto dilation = [](const ConvAxis& axis) { return axis.dilation; };
  const auto padding = [](const ConvAxis& axis) {
    return axis.padding == ConvPadding::kZeros       ? "zeros"
           : axis.padding == ConvPadding::kReplicate ? "replicate"
           : axis.padding == ConvPadding::kReflect   ? "reflect"
                                                     : "circular";
  };
  const bool pads = differs([](const ConvAxis& axis) { return static_cast<int64_t>(axis.padding); }, 0);
  return fmt::format("{}{}{}{}{}{}{}{}{}{}{}{}{}", a.has_norm ? "norm+" : "",
                     by_axis(a, [](const ConvAxis& axis) { return axis.kernel; }), a.is_transposed ? " transposed" : "",
                     differs(stride, 1) ? " /" + by_axis(a, stride) : "",
                     differs(dilation, 1) ? ", dilation " + by_axis(a, dilation) : "",
                     pads ? ", padding " + by_axis(a, padding) : "",
                     a.groups > 1 ? fmt::format(", {} groups", a.groups) : "", a.has_leading ? ", in chunks" : "",
                     a.upsample ? " upsampled" : "", a.has_bias ? "+bias" : "", a.has_item_bias ? "+item_bias" : "",
                     a.has_residual ? "+residual" : "", a.adapters ? "+adapters" : "");
}

// Counts one product with the whole kernel for each input of a transposed convolution, or for each output of another.
Dim convolution_flops(const Graph& graph, const Op& op) {
  const auto& a = std::any_cast<const ConvolutionOpAttrs&>(op.attrs);
  const ValueId rows_of = a.is_transposed ? op.inputs[0] : op.outputs[0];
  return graph.value(rows_of).shape[0] * num_elements(graph.value(op.inputs[1]).shape) * Dim(2);
}

}  // namespace

const OpDef kConvolution = {.name = "convolution",
                            .reference = convolution_reference,
                            .describe = describe_convolution,
                            .flops = convolution_flops};

}  // namespace redline
