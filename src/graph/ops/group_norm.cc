#include "graph/ops/group_norm.h"

#include <algorithm>
#include <cmath>

#include "graph/reference.h"

namespace redline {

Value group_norm(GraphBuilder& g, const FeatureMap& x, const Dim& batch, Value weight, Value bias,
                 GroupNormAttrs attrs) {
  if (!x.value.valid() || !weight.valid() || !bias.valid()) return {};
  const ValueInfo& xi = g.info(x.value);
  const Dim pixels = x.height * x.width;
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || !(xi.shape[0] == batch * pixels) || !xi.shape[1].is_constant())
    return g.fail(invalid_argument("group_norm: x is {}, expected [{}, channels]", to_string(xi.shape),
                                   (batch * pixels).to_string()));
  const int64_t channels = xi.shape[1].constant();
  if (attrs.groups < 1 || channels % attrs.groups != 0 || channels > kGroupNormMaxChannels)
    return g.fail(invalid_argument("group_norm: {} channels in {} groups; groups divide channels, which are at most {}",
                                   channels, attrs.groups, kGroupNormMaxChannels));
  for (Value v : {weight, bias})
    if (!(g.info(v).shape == Shape{xi.shape[1]}))
      return g.fail(invalid_argument("group_norm: {} is {}, expected [{}]", g.info(v).name, to_string(g.info(v).shape),
                                     channels));
  const GroupNormOpAttrs op{attrs, batch, pixels};
  const Shape shape = xi.shape;
  const Value sums =
      g.add(kGroupNormSums, {x.value}, DType::kF32, {batch * Dim(kGroupNormMaxParts), 2 * attrs.groups}, op);
  return g.add(kGroupNorm, {x.value, sums, weight, bias}, DType::kF32, shape, op);
}

// Merges the statistics of the parts in order, as the kernel merges blocks.
void group_norm_scale(const float* sums, int64_t item, int64_t pixels, int64_t channels, const GroupNormAttrs& norm,
                      const float* weight, const float* bias, float* scale, float* shift) {
  const int64_t parts = group_norm_parts(pixels), groups = norm.groups, width = channels / groups;
  sums += item * kGroupNormMaxParts * 2 * groups;
  for (int64_t g = 0; g < groups; ++g) {
    double mean = 0, deviations = 0, n = 0;
    for (int64_t part = 0; part < parts; ++part) {
      const auto more =
          static_cast<double>((group_norm_part_begin(pixels, part + 1) - group_norm_part_begin(pixels, part)) * width);
      const double delta = double{sums[(part * groups + g) * 2]} - mean;
      deviations += double{sums[(part * groups + g) * 2 + 1]} + delta * delta * n * more / (n + more);
      n += more;
      mean += delta * more / n;
    }
    const double inverse = 1 / std::sqrt(deviations / n + double{norm.eps});
    for (int64_t c = g * width; c < (g + 1) * width; ++c) {
      const double factor = double{weight[c]} * inverse;
      scale[c] = static_cast<float>(factor);
      shift[c] = static_cast<float>(double{bias[c]} - mean * factor);
    }
  }
}

void group_norm_reference(const HostTensor& x, int64_t batch, int64_t pixels, const GroupNormAttrs& norm,
                          const HostTensor& weight, const HostTensor& bias, HostTensor& y) {
  const int64_t width = x.cols() / norm.groups;
  for (int64_t item = 0; item < batch; ++item)
    for (int64_t g = 0; g < norm.groups; ++g) {
      double sum = 0, deviations = 0;
      auto each = [&](const auto& body) {
        for (int64_t r = item * pixels; r < (item + 1) * pixels; ++r)
          for (int64_t k = g * width; k < (g + 1) * width; ++k) body(r, k, x.row(r)[k]);
      };
      each([&](int64_t, int64_t, double v) { sum += v; });
      const auto count = static_cast<double>(pixels * width);
      const double mean = sum / count;
      each([&](int64_t, int64_t, double v) { deviations += (v - mean) * (v - mean); });
      const double inverse = 1 / std::sqrt(deviations / count + double{norm.eps});
      each([&](int64_t r, int64_t k, double v) {
        const auto c = static_cast<size_t>(k);
        const double z = (v - mean) * inverse * weight.data[c] + bias.data[c];
        y.row(r)[k] = norm.silu ? z / (1 + std::exp(-z)) : z;
      });
    }
}

namespace {

// Computes the statistics. Row item * kGroupNormMaxParts + part of the output holds the mean and the sum of squared
// deviations of each group. Unused parts are zero.
Status sums_reference(ReferenceContext& c) {
  const auto& op = c.attrs<GroupNormOpAttrs>();
  const int64_t batch = op.batch.eval(c.sizes()), pixels = op.pixels.eval(c.sizes());
  const HostTensor& x = c.in(0);
  const int64_t width = x.cols() / op.norm.groups;
  for (int64_t item = 0; item < batch && pixels > 0; ++item)
    for (int64_t part = 0; part < group_norm_parts(pixels); ++part)
      for (int64_t g = 0; g < op.norm.groups; ++g) {
        const int64_t begin = group_norm_part_begin(pixels, part), end = group_norm_part_begin(pixels, part + 1);
        double sum = 0, deviations = 0;
        auto each = [&](const auto& body) {
          for (int64_t r = begin; r < end; ++r)
            for (int64_t k = 0; k < width; ++k) body(x.row(item * pixels + r)[g * width + k]);
        };
        each([&](double v) { sum += v; });
        const double mean = sum / static_cast<double>((end - begin) * width);
        each([&](double v) { deviations += (v - mean) * (v - mean); });
        c.out().row(item * kGroupNormMaxParts + part)[2 * g] = mean;
        c.out().row(item * kGroupNormMaxParts + part)[2 * g + 1] = deviations;
      }
  return {};
}

// Computes the result of both ops from x itself, without the statistics, since this is their definition.
Status group_norm_rows_reference(ReferenceContext& c) {
  const auto& op = c.attrs<GroupNormOpAttrs>();
  group_norm_reference(c.in(0), op.batch.eval(c.sizes()), op.pixels.eval(c.sizes()), op.norm, c.in(2), c.in(3),
                       c.out());
  return {};
}

std::string describe_group_norm(const std::any& any) {
  const auto& norm = std::any_cast<const GroupNormOpAttrs&>(any).norm;
  return fmt::format("{} groups eps {}{}", norm.groups, norm.eps, norm.silu ? " silu" : "");
}

}  // namespace

const OpDef kGroupNormSums = {
    .name = "group_norm_sums",
    .reference = sums_reference,
};

const OpDef kGroupNorm = {.name = "group_norm",
                          .reference = group_norm_rows_reference,
                          .describe = describe_group_norm,
                          .prepares_output = true};

}  // namespace redline
