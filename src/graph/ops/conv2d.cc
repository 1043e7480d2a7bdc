#include "graph/ops/conv2d.h"

#include <algorithm>

#include "graph/items.h"
#include "graph/lower.h"
#include "graph/ops/linear.h"
#include "graph/reference.h"
#include "kernels/cpu/conv2d.h"

namespace redline {

Picture conv2d(GraphBuilder& g, Picture x, Dim batch, Value weight, Value bias, Dim height, Dim width,
               Conv2dAttrs attrs, Value item_bias) {
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

/// The sizes of one step.
struct Geometry {
  int64_t batch, in_height, in_width, out_height, out_width;

  Geometry(const Conv2dOpAttrs& a, const SymbolValues& sizes)
      : batch(a.batch.eval(sizes)), in_height(a.in_height.eval(sizes)), in_width(a.in_width.eval(sizes)),
        out_height(a.out_height.eval(sizes)), out_width(a.out_width.eval(sizes)) {}
  int64_t pixels() const { return out_height * out_width; }
  int64_t in_pixels() const { return in_height * in_width; }
};

/// Places of the optional inputs; 0: there is none.
struct Places {
  size_t bias = 0, item_bias = 0, residual = 0;

  explicit Places(const Conv2dOpAttrs& a) {
    size_t next = 2;
    if (a.has_bias) bias = next++;
    if (a.has_item_bias) item_bias = next++;
    if (a.has_residual) residual = next++;
  }
};

Status reference(ReferenceContext& c) {
  const auto& a = c.attrs<Conv2dOpAttrs>();
  const Geometry s(a, c.sizes());
  const Places at(a);
  const HostTensor &x = c.in(0), &weight = c.in(1);
  const int64_t channels = x.cols(), taps = a.kernel * a.kernel;
  for (int64_t row = 0; row < c.out().rows(); ++row) {
    const int64_t item = row / s.pixels(), oy = row % s.pixels() / s.out_width, ox = row % s.out_width;
    for (int64_t n = 0; n < c.out().cols(); ++n) {
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
        for (int64_t k = 0; k < channels; ++k) sum += pixel[k] * weight.row(n)[k * taps + tap];
      }
      if (at.bias) sum += c.in(at.bias).data[static_cast<size_t>(n)];
      if (at.item_bias) sum += c.in(at.item_bias).row(item)[n];
      if (at.residual) sum += c.in(at.residual).row(row)[n];
      c.out().row(row)[n] = sum;
    }
  }
  return {};
}

struct Attrs {
  Conv2dOpAttrs op;
  LinearKernels kernels;
  void (*patches)(const ConvPatchesArgs&);
  void (*add)(const AddArgs&);
  int64_t channels, out_features, in_features;
  int workers;
};

// Patches of a block of pixels stay within the second-level cache while the columns of the weight go by.
constexpr int64_t kBlockBytes = 1 << 20;
constexpr int64_t kMostBlockRows = 512;
// A worker with fewer rows shares them with others and takes some columns: else each would read the whole weight for too
// little.
constexpr int64_t kRowsWorthTheWeight = 256;

int64_t block_rows(int64_t in_features, XForm form) {
  const int64_t row_bytes = in_features * (form == XForm::kTiles ? 2 : 4);
  return std::clamp(kBlockBytes / row_bytes / kXTileRows * kXTileRows, kXTileRows, kMostBlockRows);
}
int64_t block_bytes(int64_t in_features, XForm form) {
  return x_form_bytes(form, block_rows(in_features, form), in_features);
}

/// The share of one task: rows in panels of 16, columns in strips of 16.
struct Share {
  int64_t row_begin, row_end, col_begin, col_end;

  Share(int64_t rows, int64_t cols, int workers, int task) {
    int row_parts = workers;
    while (row_parts > 1 && (workers % row_parts != 0 || rows / row_parts < kRowsWorthTheWeight)) --row_parts;
    const int col_parts = workers / row_parts, row = task / col_parts, col = task % col_parts;
    const int64_t panels = (rows + kXTileRows - 1) / kXTileRows, strips = (cols + kStripRows - 1) / kStripRows;
    row_begin = std::min(rows, panels * row / row_parts * kXTileRows);
    row_end = std::min(rows, panels * (row + 1) / row_parts * kXTileRows);
    col_begin = std::min(cols, strips * col / col_parts * kStripRows);
    col_end = std::min(cols, strips * (col + 1) / col_parts * kStripRows);
  }
};

// operands: x, weight, y, bias or null, items' bias or null, residual or null
void run(const Stage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  const Geometry s(a.op, step.sizes);
  const int64_t rows = s.batch * s.pixels(), cols = a.out_features, k = a.in_features;
  const Share share(rows, cols, a.workers, tile.index);
  if (share.col_begin >= share.col_end) return;
  const int chosen = a.kernels.forms.index_for_rows(rows);
  const XForm form = a.kernels.forms.at[chosen].form;
  const int64_t most = block_rows(k, form);
  auto* buffer = static_cast<uint8_t*>(worker.buffer);
  const auto* item_bias = stage.operand<float>(4);
  auto* y = stage.operand<float>(2);
  const auto* residual = stage.operand<float>(5);
  for (int64_t begin = share.row_begin, end; begin < share.row_end; begin = end) {
    end = std::min(begin + most, share.row_end);
    // An item's own bias is for its rows alone.
    if (item_bias) end = std::min(end, (begin / s.pixels() + 1) * s.pixels());
    for_items(begin, end, s.pixels(), [&](int64_t item, int64_t row, int64_t row_end) {
      const int64_t first = item * s.pixels();
      a.patches({stage.operand<float>(0) + item * s.in_pixels() * a.channels, s.in_height, s.in_width, a.channels,
                 s.out_height, s.out_width, a.op.kernel, a.op.stride, a.op.pad_before, a.op.upsample, row - first,
                 row_end - first, form, row - begin, buffer});
    });
    const float* bias = stage.operand<float>(3);
    if (item_bias) {
      // Both in one, behind the patches.
      const float* own = item_bias + begin / s.pixels() * cols;
      auto* both = reinterpret_cast<float*>(buffer + stage.buffer_bytes) - cols;
      if (bias) a.add({bias, own, both, cols});
      bias = bias ? both : own;
    }
    a.kernels.run[chosen]({buffer, k, end - begin, stage.operands[1], cols, k, share.col_begin, share.col_end, bias,
                           residual ? residual + begin * cols : nullptr, y + begin * cols, cols, worker.scratch});
  }
}

Status lower(LowerContext& c) {
  const auto& in = c.op().inputs;
  const auto& op = std::any_cast<const Conv2dOpAttrs&>(c.op().attrs);
  const Places at(op);
  auto attrs = std::make_shared<Attrs>();
  attrs->op = op;
  attrs->kernels = choose_linear(c.kernels(), c.in(1).dtype, c.options().exact_f32);
  attrs->patches = c.kernels().conv_patches;
  attrs->add = c.kernels().add;
  attrs->channels = c.in(0).shape[1].constant();
  attrs->out_features = c.out().shape[1].constant();
  attrs->in_features = attrs->channels * op.kernel * op.kernel;
  attrs->workers = c.workers();
  if (!attrs->kernels.run[0])
    return unsupported("{} has type {}, which the linear kernels do not read", c.in(1).name,
                       dtype_info(c.in(1).dtype).name);
  for (int i = 0; i < attrs->kernels.forms.count; ++i)
    if (attrs->kernels.forms.at[i].form == XForm::kQ8)
      return internal("{}: patches are not made in eight bits", c.in(1).name);
  REDLINE_ASSIGN(void* weight, c.packed_weight(1));
  void* bias = nullptr;
  if (at.bias) {
    REDLINE_ASSIGN(bias, c.dense_weight(at.bias));
  }
  // Tasks share rows and columns by the sizes of each step, so to the planner the stage has so many rows whatever the step:
  // twice the workers, a number that no other kind of stage has. Convolutions of one shape, an output and its residual,
  // share alike and may wait tile by tile; all others wait for the whole.
  Stage stage = c.output_stage(run);
  stage.rows = 2 * c.workers();
  stage.row_tiles = c.workers();
  for (int i = 0; i < attrs->kernels.forms.count; ++i)
    stage.buffer_bytes = std::max(stage.buffer_bytes, block_bytes(attrs->in_features, attrs->kernels.forms.at[i].form));
  stage.buffer_bytes = (stage.buffer_bytes + 63) / 64 * 64 + (at.item_bias ? attrs->out_features * 4 : 0);
  stage.reads = {{in[0], Reads::kAll}};
  auto optional = [&](size_t place) {
    if (place == 0) return c.at(static_cast<void*>(nullptr));
    stage.reads.push_back({in[place], place == at.residual ? Reads::kTile : Reads::kAll});
    return c.at(in[place]);
  };
  const LowerContext::Operand item_bias = optional(at.item_bias), residual = optional(at.residual);
  if (at.residual) stage.in_place_of = in[at.residual];
  stage.attrs = std::move(attrs);
  c.add_stage(std::move(stage), {c.at(in[0]), c.at(weight), c.at(c.op().outputs[0]), c.at(bias), item_bias, residual});
  return {};
}

std::string describe(const std::any& any) {
  const auto& a = std::any_cast<const Conv2dOpAttrs&>(any);
  return fmt::format("{}x{}{}{}{}{}{}", a.kernel, a.kernel, a.stride > 1 ? fmt::format(" /{}", a.stride) : "",
                     a.upsample ? " upsampled" : "", a.has_bias ? "+bias" : "", a.has_item_bias ? "+item_bias" : "",
                     a.has_residual ? "+residual" : "");
}

}  // namespace

const OpDef kConv2d = {.name = "conv2d", .reference = reference, .lower = lower, .describe = describe};

}  // namespace redline
