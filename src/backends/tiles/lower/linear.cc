// linear, head_linear and convolution.
#include "graph/ops/linear.h"

#include "backends/tiles/shared_lowering.h"
#include "graph/ops/convolution.h"
#include "graph/ops/head_linear.h"
#include "tensor/packed_weight.h"

namespace redline {

Status set_product(tiles::LinearArgs& args, const ValueInfo& matrix) {
  REDLINE_ASSIGN(args.format, panel_format(matrix.dtype).within(matrix.name));
  int64_t in_features = 1;  // of a convolution: of a patch
  for (size_t i = 1; i < matrix.shape.size(); ++i) in_features *= matrix.shape[i].constant();
  args.in_features = static_cast<int32_t>(in_features);
  args.out_features = args.head_features = static_cast<int32_t>(matrix.shape[0].constant());
  args.x_stride = args.in_features;
  args.panel_stride = static_cast<int32_t>(packed_bytes(matrix.dtype, kRowPanelRows, in_features));
  args.panel_bytes = args.panel_stride - args.format.row_scale_bytes;
  const int32_t units =
      std::min(tiles::kSlotBytes / args.format.unit_bytes, tiles::detail::kMaxChunk / args.format.elements);
  args.chunk_bytes = units * args.format.unit_bytes;
  args.chunk_elements = units * args.format.elements;
  return {};
}

bool multiplies_in_f32(const TileLowerContext& c, DType weight) {
  return c.options().exact_f32 || weight == DType::kF32 || weight == DType::kF16;
}

namespace {

using ProductArgs = tiles::LinearArgs;

/// Adds two stages that compute y = `without` plus the products of the step's adapters at a site: first x down^T, then
/// the product with the up matrices. `down` reads the rows that the op multiplies.
template <class Kernel>
void add_adapters(TileLowerContext& c, TileStageBuilder<Kernel> down, std::shared_ptr<AdapterSite> site,
                  ValueId without, ValueId y) {
  const int64_t t_cols = site->max_rank, cols = c.out().shape[1].constant();
  const ValueId t = c.add_temporary(c.op().name + ".shrink", {c.out().shape[0], Dim(t_cols)});
  down.args.in_features = static_cast<int32_t>(site->in_features);
  down.args.t_cols = static_cast<int32_t>(t_cols);
  const int32_t number = c.adapter_site(std::move(site));
  down.args.site = number;
  down.read(&Kernel::Args::x, c.op().inputs[0], Reads::kAll);
  down.write(&Kernel::Args::t, t);
  down.plan().name = c.op().name + ".shrink";
  down.stage().set_work_partitions(c.multiprocessors(), t_cols);
  down.add();
  TileStageBuilder<tiles::AdapterUp> up(c, tiles::KernelId::kAdapterUp);
  using UpArgs = tiles::AdapterUp::Args;
  up.args.cols = static_cast<int32_t>(cols);
  up.args.t_cols = static_cast<int32_t>(t_cols);
  up.args.site = number;
  up.read(&UpArgs::x, without, Reads::kTile);
  up.read(&UpArgs::t, t, Reads::kAll);
  up.write(&UpArgs::y, y);
  up.plan().name = c.op().name + ".expand";
  up.plan().in_place_of = without;
  up.stage().set_grid(c.out().shape[0], cols, 1024, 8, c.row_parts());
  up.add();
}

/// Makes the stage read the table of gates, or of the items' biases.
template <class Kernel>
void read_table(TileLowerContext& c, TileStageBuilder<Kernel>& s, size_t input, int64_t begin, const Dim& item_rows,
                bool is_gate) {
  s.args.table_cols = static_cast<int32_t>(c.in(input).shape[1].constant());
  s.args.table_begin = static_cast<int32_t>(begin);
  s.args.table_is_gate = is_gate ? 1 : 0;
  s.row_dim(s.args.item_rows, item_rows);
  s.read(&Kernel::Args::table, c.op().inputs[input], Reads::kAll);
}

template <class Kernel>
Status lower_product(TileLowerContext& c, tiles::KernelId id) {
  const auto& attrs = std::any_cast<const LinearAttrs&>(c.op().attrs);
  const size_t last = c.op().inputs.size() - 1, residual = last - (attrs.has_gate ? 1 : 0);
  // The gate multiplies what adapters add too.
  const bool gates_later = attrs.has_gate && attrs.adapters;
  TileStageBuilder<Kernel> s(c, id);
  REDLINE_TRY(set_product(s.args, c.in(1)));
  REDLINE_TRY(s.packed_weight(&Kernel::Args::weight, 1));
  if (attrs.has_bias) REDLINE_TRY(s.dense_weight(&Kernel::Args::bias, 2));
  s.read(&Kernel::Args::x, c.op().inputs[0], Reads::kRows);
  if (attrs.has_gate && !gates_later) read_table(c, s, last, attrs.gate_column, attrs.rows_per_item, true);
  if (attrs.has_residual && !gates_later) {
    s.read(&Kernel::Args::residual, c.op().inputs[residual], Reads::kTile);
    s.plan().in_place_of = c.op().inputs[residual];
  }
  const ValueId y = attrs.adapters ? c.add_temporary(c.op().name + ".product", c.out().shape) : c.op().outputs[0];
  s.write(&Kernel::Args::y, y);
  // Few rows are one pass over the weight, which a persistent step must not read twice.
  s.stage().set_grid(c.out().shape[0], s.args.out_features, tiles::kLinearCols, Kernel::kPassRows, 1);
  s.add();
  if (!attrs.adapters) return {};
  const ValueId adapted = gates_later ? c.add_temporary(c.op().name + ".adapted", c.out().shape) : c.op().outputs[0];
  add_adapters(c, TileStageBuilder<tiles::AdapterDown>(c, tiles::KernelId::kAdapterDown), attrs.adapters, y, adapted);
  if (gates_later) add_gated(c, adapted, c.op().inputs[residual], last, attrs.gate_column, attrs.rows_per_item);
  return {};
}

Status lower_linear(TileLowerContext& c) {
  if (multiplies_in_f32(c, c.in(1).dtype)) return lower_product<tiles::LinearF32>(c, tiles::KernelId::kLinearF32);
  return lower_product<tiles::Linear>(c, tiles::KernelId::kLinear);
}

template <class Kernel>
Status lower_heads(TileLowerContext& c, tiles::KernelId id) {
  const int64_t heads = std::any_cast<const HeadAttrs&>(c.op().attrs).num_heads, x_cols = c.in(0).shape[1].constant();
  TileStageBuilder<Kernel> s(c, id);
  REDLINE_TRY(set_product(s.args, c.in(1)));
  const int64_t features = s.args.head_features;
  s.args.out_features = static_cast<int32_t>(heads * features);
  s.args.x_stride = static_cast<int32_t>(x_cols);
  s.args.x_head_step = static_cast<int32_t>(x_cols / heads);
  REDLINE_TRY(s.packed_weights(&ProductArgs::weight, 1, static_cast<size_t>(heads), &ProductArgs::matrix_bytes));
  s.read(&ProductArgs::x, c.op().inputs[0], Reads::kRows);
  s.write(&ProductArgs::y, c.op().outputs[0]);
  // Columns of a task lie in one head and begin with a panel.
  int64_t cols = std::min<int64_t>(features, tiles::kLinearCols);
  while (features % cols != 0) cols = (cols - 1) / kRowPanelRows * kRowPanelRows;
  if (cols == 0)
    return unsupported(
        "heads of {} features are not supported on this device; expected at most 128, or a multiple of 16", features);
  s.stage().set_grid(c.out().shape[0], heads * features, cols, Kernel::kPassRows, 1);
  s.add();
  return {};
}

Status lower_head_linear(TileLowerContext& c) {
  if (multiplies_in_f32(c, c.in(1).dtype)) return lower_heads<tiles::LinearF32>(c, tiles::KernelId::kLinearF32);
  return lower_heads<tiles::Linear>(c, tiles::KernelId::kLinear);
}

template <class Builder>
void set_patch(Builder& s, const SquareConv2d& a, int64_t channels) {
  tiles::PatchShape& patch = s.args.patch;
  patch.channels = static_cast<int32_t>(channels);
  patch.block = static_cast<int32_t>(channels % kConvBlock == 0 ? kConvBlock : channels);
  patch.kernel = static_cast<int32_t>(a.kernel);
  patch.stride = static_cast<int32_t>(a.stride);
  patch.pad = static_cast<int32_t>(a.pad_before);
  patch.upsample = a.upsample ? 1 : 0;
  s.row_dim(patch.in_height, a.in_height);
  s.row_dim(patch.in_width, a.in_width);
  s.row_dim(patch.out_height, a.out_height);
  s.row_dim(patch.out_width, a.out_width);
}

template <class Kernel>
Status lower_patches(TileLowerContext& c, tiles::KernelId id) {
  const auto& attrs = std::any_cast<const ConvolutionOpAttrs&>(c.op().attrs);
  const ConvolutionInputIndex at(attrs);
  const auto square = SquareConv2d::of(attrs);
  if (!square || dtype_info(c.in(1).dtype).is_block)
    return unsupported(
        "convolution {} with a {} weight; this device computes convolutions of two axes, with equal kernels, strides "
        "and zero padding, float weights and one group. Run the network on the CPU",
        c.op().def->describe(c.op().attrs), dtype_info(c.in(1).dtype).name);
  if (attrs.has_norm) return internal("only the CPU back end fuses a norm into a convolution");
  const int64_t channels = c.in(0).shape[1].constant();
  TileStageBuilder<Kernel> s(c, id);
  REDLINE_TRY(set_product(s.args, c.in(1)));
  set_patch(s, *square, channels);
  REDLINE_TRY(s.packed_weight(&Kernel::Args::weight, 1));
  if (at.bias) REDLINE_TRY(s.dense_weight(&Kernel::Args::bias, at.bias));
  s.read(&Kernel::Args::x, c.op().inputs[0], Reads::kAll);
  if (at.item_bias) read_table(c, s, at.item_bias, 0, square->out_height * square->out_width, false);
  if (at.residual) {
    s.read(&Kernel::Args::residual, c.op().inputs[at.residual], Reads::kTile);
    s.plan().in_place_of = c.op().inputs[at.residual];
  }
  const ValueId y = attrs.adapters ? c.add_temporary(c.op().name + ".product", c.out().shape) : c.op().outputs[0];
  s.write(&Kernel::Args::y, y);
  s.stage().set_grid(c.out().shape[0], s.args.out_features, tiles::kLinearCols, Kernel::kPassRows, c.row_parts());
  s.add();
  if (!attrs.adapters) return {};
  TileStageBuilder<tiles::ConvAdapterDown> down(c, tiles::KernelId::kConvAdapterDown);
  set_patch(down, *square, channels);
  add_adapters(c, std::move(down), attrs.adapters, y, c.op().outputs[0]);
  return {};
}

Status lower_convolution(TileLowerContext& c) {
  if (multiplies_in_f32(c, c.in(1).dtype)) return lower_patches<tiles::Conv2dF32>(c, tiles::KernelId::kConv2dF32);
  return lower_patches<tiles::Conv2d>(c, tiles::KernelId::kConv2d);
}

constexpr TileLowering kLinearOps[] = {
    {&kLinear, lower_linear},
    {&kHeadLinear, lower_head_linear},
    {&kConvolution, lower_convolution},
};

}  // namespace

extern const TileLowerings kLinearTileLowerings = kLinearOps;

}  // namespace redline
