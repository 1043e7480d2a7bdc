#include "graph/ops/group_norm.h"

#include <algorithm>
#include <cmath>

#include "graph/items.h"
#include "graph/lower.h"
#include "graph/prepared_output.h"
#include "graph/reference.h"
#include "kernels/cpu/group_norm.h"

namespace redline {
namespace {

// Parts of an item whose statistics are made by themselves. A part of fewer pixels is not worth its own.
constexpr int64_t kMostParts = 64, kLeastPixels = 64;

int64_t num_parts(int64_t pixels) { return std::clamp<int64_t>(pixels / kLeastPixels, 1, kMostParts); }
int64_t part_begin(int64_t pixels, int64_t part) { return pixels * part / num_parts(pixels); }

using NormOp = GroupNormOpAttrs;

}  // namespace

Value group_norm(GraphBuilder& g, const Picture& x, const Dim& batch, Value weight, Value bias, GroupNormAttrs attrs) {
  if (!x.value.valid() || !weight.valid() || !bias.valid()) return {};
  const ValueInfo& xi = g.info(x.value);
  const Dim pixels = x.height * x.width;
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || !(xi.shape[0] == batch * pixels) || !xi.shape[1].is_constant())
    return g.fail(invalid_argument("group_norm: x is {}, expected [{}, channels]", to_string(xi.shape),
                                   (batch * pixels).to_string()));
  const int64_t channels = xi.shape[1].constant();
  if (attrs.groups < 1 || channels % attrs.groups != 0 || channels > kGroupNormMostChannels)
    return g.fail(invalid_argument("group_norm: {} channels in {} groups; groups divide channels, which are at most {}",
                                   channels, attrs.groups, kGroupNormMostChannels));
  for (Value v : {weight, bias})
    if (!(g.info(v).shape == Shape{xi.shape[1]}))
      return g.fail(invalid_argument("group_norm: {} is {}, expected [{}]", g.info(v).name, to_string(g.info(v).shape),
                                     channels));
  const NormOp op{attrs, batch, pixels};
  const Shape shape = xi.shape;
  const Value sums = g.add(kGroupNormSums, {x.value}, DType::kF32, {batch * Dim(kMostParts), 2 * attrs.groups}, op);
  return g.add(kGroupNorm, {x.value, sums, weight, bias}, DType::kF32, shape, op);
}

// Parts are put together in order, as the kernel does blocks.
void group_norm_scale(const float* sums, int64_t item, int64_t pixels, int64_t channels, const GroupNormAttrs& norm,
                      const float* weight, const float* bias, float* scale, float* shift) {
  const int64_t parts = num_parts(pixels), groups = norm.groups, width = channels / groups;
  sums += item * kMostParts * 2 * groups;
  for (int64_t g = 0; g < groups; ++g) {
    double mean = 0, deviations = 0, n = 0;
    for (int64_t part = 0; part < parts; ++part) {
      const auto more = static_cast<double>((part_begin(pixels, part + 1) - part_begin(pixels, part)) * width);
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

// Row item * kMostParts + part: mean and squared deviations of each group. Parts that an item does not have stay zero.
Status sums_reference(ReferenceContext& c) {
  const auto& op = c.attrs<NormOp>();
  const int64_t batch = op.batch.eval(c.sizes()), pixels = op.pixels.eval(c.sizes());
  const HostTensor& x = c.in(0);
  const int64_t width = x.cols() / op.norm.groups;
  for (int64_t item = 0; item < batch && pixels > 0; ++item)
    for (int64_t part = 0; part < num_parts(pixels); ++part)
      for (int64_t g = 0; g < op.norm.groups; ++g) {
        const int64_t begin = part_begin(pixels, part), end = part_begin(pixels, part + 1);
        double sum = 0, deviations = 0;
        auto each = [&](const auto& body) {
          for (int64_t r = begin; r < end; ++r)
            for (int64_t k = 0; k < width; ++k) body(x.row(item * pixels + r)[g * width + k]);
        };
        each([&](double v) { sum += v; });
        const double mean = sum / static_cast<double>((end - begin) * width);
        each([&](double v) { deviations += (v - mean) * (v - mean); });
        c.out().row(item * kMostParts + part)[2 * g] = mean;
        c.out().row(item * kMostParts + part)[2 * g + 1] = deviations;
      }
  return {};
}

// From x itself: the meaning of both ops together.
Status norm_reference(ReferenceContext& c) {
  const auto& op = c.attrs<NormOp>();
  group_norm_reference(c.in(0), op.batch.eval(c.sizes()), op.pixels.eval(c.sizes()), op.norm, c.in(2), c.in(3),
                       c.out());
  return {};
}

struct Attrs {
  void (*kernel)(const GroupNormArgs&);
  NormOp op;
  int64_t channels;
  int workers;
  bool prepared;
  PreparedOutput out;
};

// operands: x, sums
void run_sums(const Stage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  const int64_t batch = a.op.batch.eval(step.sizes), pixels = a.op.pixels.eval(step.sizes);
  if (pixels == 0) return;
  const int64_t parts = num_parts(pixels), groups = a.op.norm.groups;
  GroupNormArgs args = {};
  args.channels = a.channels;
  args.groups = groups;
  args.scratch = worker.scratch;
  for_items(batch * parts * tile.index / a.workers, batch * parts * (tile.index + 1) / a.workers, parts,
            [&](int64_t item, int64_t begin, int64_t end) {
              for (int64_t part = begin - item * parts; part < end - item * parts; ++part) {
                const int64_t row = part_begin(pixels, part);
                args.x = stage.operand<float>(0) + (item * pixels + row) * a.channels;
                args.rows = part_begin(pixels, part + 1) - row;
                args.sums = stage.operand<float>(1) + (item * kMostParts + part) * 2 * groups;
                a.kernel(args);
              }
            });
}

// operands: x, sums, weight, bias, y
void run_norm(const Stage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  const int64_t pixels = a.op.pixels.eval(step.sizes), rows = a.op.batch.eval(step.sizes) * pixels;
  auto* scale = static_cast<float*>(worker.buffer);
  GroupNormArgs args = {};
  args.channels = a.channels;
  args.scale = scale;
  args.shift = scale + a.channels;
  args.silu = a.op.norm.silu;
  auto norm = [&](const Tile& part, float* y) {
    args.x = stage.operand<float>(0) + part.row_begin * a.channels;
    args.rows = part.row_end - part.row_begin;
    args.y = y;
    a.kernel(args);
  };
  for_items(tile.row_begin, tile.row_end, pixels, [&](int64_t item, int64_t begin, int64_t end) {
    group_norm_scale(stage.operand<float>(1), item, pixels, a.channels, a.op.norm, stage.operand<float>(2),
                     stage.operand<float>(3), scale, scale + a.channels);
    Tile part = tile;
    part.row_begin = begin;
    part.row_end = end;
    if (a.prepared) a.out.write_parts(part, rows, worker.scratch, stage.operands[4], norm);
    else norm(part, stage.operand<float>(4) + begin * a.channels);
  });
}

std::shared_ptr<Attrs> make_attrs(const LowerContext& c) {
  auto attrs = std::make_shared<Attrs>();
  attrs->op = std::any_cast<const NormOp&>(c.op().attrs);
  attrs->channels = c.in(0).shape[1].constant();
  attrs->workers = c.workers();
  return attrs;
}

Status lower_sums(LowerContext& c) {
  auto attrs = make_attrs(c);
  attrs->kernel = c.kernels().group_norm_sums;
  // Tasks share the parts that items of this step's size have: each must run whatever the step.
  Stage stage = c.output_stage(run_sums);
  stage.rows = stage.row_tiles = c.workers();
  stage.reads = {{c.op().inputs[0], Reads::kAll}};
  stage.attrs = std::move(attrs);
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(c.op().outputs[0])});
  return {};
}

Status lower_norm(LowerContext& c) {
  const auto& in = c.op().inputs;
  auto attrs = make_attrs(c);
  attrs->kernel = c.kernels().group_norm;
  attrs->prepared = !c.out().forms.only_f32();
  REDLINE_ASSIGN(attrs->out, PreparedOutput::make(c));
  REDLINE_ASSIGN(void* weight, c.dense_weight(2));
  REDLINE_ASSIGN(void* bias, c.dense_weight(3));
  Stage stage = c.output_stage(run_norm);
  stage.row_tiles = c.workers();
  stage.buffer_bytes = 2 * attrs->channels * int64_t{sizeof(float)};
  stage.reads = {{in[0], Reads::kTile}, {in[1], Reads::kAll}};
  if (!attrs->prepared) stage.in_place_of = in[0];
  stage.attrs = std::move(attrs);
  c.add_stage(std::move(stage), {c.at(in[0]), c.at(in[1]), c.at(weight), c.at(bias), c.at(c.op().outputs[0])});
  return {};
}

std::string describe(const std::any& any) {
  const auto& norm = std::any_cast<const NormOp&>(any).norm;
  return fmt::format("{} groups eps {}{}", norm.groups, norm.eps, norm.silu ? " silu" : "");
}

}  // namespace

const OpDef kGroupNormSums = {.name = "group_norm_sums", .reference = sums_reference, .lower = lower_sums};
const OpDef kGroupNorm = {.name = "group_norm",
                          .reference = norm_reference,
                          .lower = lower_norm,
                          .describe = describe,
                          .prepares_output = true};

}  // namespace redline
