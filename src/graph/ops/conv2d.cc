#include "graph/ops/conv2d.h"

#include "graph/ops/linear.h"
#include "graph/reference.h"

namespace redline {

FeatureMap conv2d(GraphBuilder& g, const FeatureMap& x, const Dim& batch, Value weight, Value bias, const Dim& height,
                  const Dim& width, Conv2dAttrs attrs, Value item_bias) {
  if (!x.value.valid() || !weight.valid()) return {};
  const ValueInfo &xi = g.info(x.value), &w = g.info(weight);
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || !(xi.shape[0] == batch * x.height * x.width) ||
      !xi.shape[1].is_constant())
    return {g.fail(invalid_argument("conv2d: x is {}, expected [{}, channels]", to_string(xi.shape),
                                    (batch * x.height * x.width).to_string()))};
  if (w.kind != ValueKind::kWeight ||
      !(w.shape == Shape{w.shape.at(0), xi.shape[1], Dim(attrs.kernel), Dim(attrs.kernel)}) ||
      dtype_info(w.dtype).is_block)
    return {g.fail(invalid_argument("conv2d: {} is {} {}, expected [out, {}, {}, {}] of a plain type", w.name,
                                    dtype_info(w.dtype).name, to_string(w.shape), xi.shape[1].to_string(), attrs.kernel,
                                    attrs.kernel))};
  if (attrs.kernel < 1 || attrs.stride < 1 || attrs.pad_before < 0 || attrs.pad_after < 0 ||
      (attrs.upsample && attrs.stride != 1))
    return {
        g.fail(invalid_argument("conv2d: kernel {}, stride {}, zeros {} and {}{} make no convolution", attrs.kernel,
                                attrs.stride, attrs.pad_before, attrs.pad_after, attrs.upsample ? ", upsampled" : ""))};
  const Dim channels = w.shape[0];
  if (bias.valid() && !(g.info(bias).shape == Shape{channels}))
    return {g.fail(invalid_argument("conv2d: {} is {}, expected [{}]", g.info(bias).name, to_string(g.info(bias).shape),
                                    channels.to_string()))};
  if (item_bias.valid() && !(g.info(item_bias).shape == Shape{batch, channels}))
    return {g.fail(invalid_argument("conv2d: the items' bias is {}, expected {}", to_string(g.info(item_bias).shape),
                                    to_string({batch, channels})))};

  const bool same_size = height == x.height && width == x.width;
  if (attrs.kernel == 1 && attrs.stride == 1 && attrs.pad_before == 0 && attrs.pad_after == 0 && same_size &&
      !item_bias.valid()) {
    WeightSource matrix = w.weight;
    matrix.view.shape.resize(2);
    return {linear(g, x.value, g.weight(w.name, std::move(matrix)), bias), height, width};
  }

  Conv2dOpAttrs op;
  static_cast<Conv2dAttrs&>(op) = attrs;
  op.batch = batch;
  op.in_height = x.height;
  op.in_width = x.width;
  op.out_height = height;
  op.out_width = width;
  op.has_bias = bias.valid();
  op.has_item_bias = item_bias.valid();
  std::vector<Value> inputs = {x.value, weight};
  if (bias.valid()) inputs.push_back(bias);
  if (item_bias.valid()) inputs.push_back(item_bias);
  return {g.add(kConv2d, inputs, DType::kF32, {batch * height * width, channels}, op), height, width};
}

namespace {

Status conv2d_reference(ReferenceContext& c) {
  const auto& a = c.attrs<Conv2dOpAttrs>();
  const Conv2dGeometry s(a, c.sizes());
  const Conv2dInputs at(a);
  HostTensor normalized;
  if (at.norm) {
    normalized = c.in(0);
    group_norm_reference(c.in(0), s.batch, s.in_pixels(), a.norm, c.in(at.norm + 1), c.in(at.norm + 2), normalized);
  }
  const HostTensor &x = at.norm ? normalized : c.in(0), &weight = c.in(1);
  const int64_t channels = x.cols(), taps = a.kernel * a.kernel;
  for (int64_t row = 0; row < c.out().rows(); ++row) {
    const int64_t item = row / s.pixels(), oy = row % s.pixels() / s.out_width, ox = row % s.out_width;
    const auto product_with = [&](const auto* filter) {
      double sum = 0;
      for (int64_t tap = 0; tap < taps; ++tap) {
        int64_t y = oy * a.stride + tap / a.kernel - a.pad_before, x_at = ox * a.stride + tap % a.kernel - a.pad_before;
        const int64_t height = a.upsample ? s.out_height : s.in_height, width = a.upsample ? s.out_width : s.in_width;
        if (y < 0 || y >= height || x_at < 0 || x_at >= width) continue;
        if (a.upsample) {
          y = y * s.in_height / s.out_height;
          x_at = x_at * s.in_width / s.out_width;
        }
        const double* pixel = x.row(item * s.in_pixels() + y * s.in_width + x_at);
        for (int64_t k = 0; k < channels; ++k) sum += pixel[k] * static_cast<double>(filter[k * taps + tap]);
      }
      return sum;
    };
    for (int64_t n = 0; n < c.out().cols(); ++n) {
      double sum = product_with(weight.row(n));
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
          const double t = product_with(f->plain_down + r * channels * taps) * static_cast<double>(f->scale) *
                           static_cast<double>(each.weight);
          for (int64_t n = 0; n < c.out().cols(); ++n)
            c.out().row(row)[n] += t * static_cast<double>(f->plain_up[n * f->rank + r]);
        }
      }
    });
  }
  return {};
}

std::string describe_conv2d(const std::any& any) {
  const auto& a = std::any_cast<const Conv2dOpAttrs&>(any);
  return fmt::format("{}{}x{}{}{}{}{}{}{}", a.has_norm ? "norm+" : "", a.kernel, a.kernel,
                     a.stride > 1 ? fmt::format(" /{}", a.stride) : "", a.upsample ? " upsampled" : "",
                     a.has_bias ? "+bias" : "", a.has_item_bias ? "+item_bias" : "", a.has_residual ? "+residual" : "",
                     a.adapters ? "+adapters" : "");
}

Dim conv2d_flops(const Graph& graph, const Op& op) {
  return graph.value(op.outputs[0]).shape[0] * num_elements(graph.value(op.inputs[1]).shape) * Dim(2);
}

}  // namespace

const OpDef kConv2d = {
    .name = "conv2d", .reference = conv2d_reference, .describe = describe_conv2d, .flops = conv2d_flops};

}  // namespace redline
