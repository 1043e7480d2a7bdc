// linear and head_linear.
#include "graph/ops/linear.h"

#include "backends/tiles/shared_lowering.h"
#include "graph/ops/head_linear.h"
#include "tensor/packed_weight.h"

namespace redline {

Status set_product(tiles::LinearArgs& args, const ValueInfo& matrix) {
  REDLINE_ASSIGN(args.format, panel_format(matrix.dtype).within(matrix.name));
  const int64_t in_features = matrix.shape[1].constant();
  args.in_features = static_cast<int32_t>(in_features);
  args.out_features = args.head_features = static_cast<int32_t>(matrix.shape[0].constant());
  args.x_stride = args.in_features;
  args.panel_bytes = static_cast<int32_t>(packed_bytes(matrix.dtype, kRowPanelRows, in_features));
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

/// y = x with the step's adapters at a site added, in two stages: x down^T once, then up.
void add_adapters(TileLowerContext& c, std::shared_ptr<AdapterSite> site, ValueId without) {
  const int64_t t_cols = site->max_rank, cols = c.out().shape[1].constant();
  const ValueId t = c.add_temporary(c.op().name + ".shrink", {c.out().shape[0], Dim(t_cols)});
  const int32_t number = c.adapter_site(std::move(site));
  TileStageBuilder<tiles::AdapterDown> down(c, tiles::KernelId::kAdapterDown);
  using DownArgs = tiles::AdapterDown::Args;
  down.args.in_features = static_cast<int32_t>(c.in(0).shape[1].constant());
  down.args.t_cols = static_cast<int32_t>(t_cols);
  down.args.site = number;
  down.read(&DownArgs::x, c.op().inputs[0], Reads::kAll);
  down.write(&DownArgs::t, t);
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
  up.write(&UpArgs::y, c.op().outputs[0]);
  up.plan().name = c.op().name + ".expand";
  up.plan().in_place_of = without;
  up.stage().set_grid(c.out().shape[0], cols, 1024, 8, c.row_parts());
  up.add();
}

template <class Kernel>
Status lower_product(TileLowerContext& c, tiles::KernelId id) {
  const auto& attrs = std::any_cast<const LinearAttrs&>(c.op().attrs);
  TileStageBuilder<Kernel> s(c, id);
  REDLINE_TRY(set_product(s.args, c.in(1)));
  REDLINE_TRY(s.packed_weight(&ProductArgs::weight, 1));
  if (attrs.has_bias) REDLINE_TRY(s.dense_weight(&ProductArgs::bias, 2));
  s.read(&ProductArgs::x, c.op().inputs[0], Reads::kRows);
  if (attrs.has_residual) {
    s.read(&ProductArgs::residual, c.op().inputs.back(), Reads::kTile);
    s.plan().in_place_of = c.op().inputs.back();
  }
  const ValueId y = attrs.adapters ? c.add_temporary(c.op().name + ".product", c.out().shape) : c.op().outputs[0];
  s.write(&ProductArgs::y, y);
  // Few rows are one pass over the weight, which a persistent step must not read twice.
  s.stage().set_grid(c.out().shape[0], s.args.out_features, tiles::kLinearCols, Kernel::kPassRows, 1);
  s.add();
  if (attrs.adapters) add_adapters(c, attrs.adapters, y);
  return {};
}

Status lower_linear(TileLowerContext& c) {
  const auto& attrs = std::any_cast<const LinearAttrs&>(c.op().attrs);
  if (attrs.has_gate) return unsupported("gates of modulation tables do not run on this device yet");
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
  if (cols == 0) return unsupported("heads of {} features; expected at most 128, or a multiple of 16", features);
  s.stage().set_grid(c.out().shape[0], heads * features, cols, Kernel::kPassRows, 1);
  s.add();
  return {};
}

Status lower_head_linear(TileLowerContext& c) {
  if (multiplies_in_f32(c, c.in(1).dtype)) return lower_heads<tiles::LinearF32>(c, tiles::KernelId::kLinearF32);
  return lower_heads<tiles::Linear>(c, tiles::KernelId::kLinear);
}

}  // namespace

extern const TileLowering kLinearTiles = {&kLinear, lower_linear};
extern const TileLowering kHeadLinearTiles = {&kHeadLinear, lower_head_linear};

}  // namespace redline
