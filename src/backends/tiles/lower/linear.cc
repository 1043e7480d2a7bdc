#include "graph/ops/linear.h"

#include "backends/tiles/tile_lowering.h"
#include "tensor/packed_weight.h"

namespace redline {
namespace {

template <class Kernel>
Status lower_product(TileLowerContext& c, tiles::KernelId id, const tiles::PanelFormat& format) {
  using Args = tiles::LinearArgs;
  const auto& attrs = std::any_cast<const LinearAttrs&>(c.op().attrs);
  const ValueInfo& weight = c.in(1);
  const int64_t in_features = weight.shape[1].constant(), out_features = weight.shape[0].constant();
  TileStageBuilder<Kernel> s(c, id);
  s.args.format = format;
  s.args.in_features = static_cast<int32_t>(in_features);
  s.args.out_features = static_cast<int32_t>(out_features);
  s.args.panel_bytes = static_cast<int32_t>(packed_bytes(weight.dtype, kStripRows, in_features));
  const int32_t units =
      std::min(tiles::kSlotBytes / format.unit_bytes, tiles::detail::kMaxChunk / format.elements);
  s.args.chunk_bytes = units * format.unit_bytes;
  s.args.chunk_elements = units * format.elements;
  REDLINE_TRY(s.packed_weight(&Args::weight, 1));
  if (attrs.has_bias) REDLINE_TRY(s.dense_weight(&Args::bias, 2));
  s.read(&Args::x, c.op().inputs[0], Reads::kRows);
  if (attrs.has_residual) {
    s.read(&Args::residual, c.op().inputs.back(), Reads::kTile);
    s.plan().in_place_of = c.op().inputs.back();
  }
  s.write(&Args::y, c.op().outputs[0]);
  // Few rows are one pass over the weight, which a persistent step must not read twice.
  s.stage().set_grid(c.out().shape[0], out_features, tiles::kLinearCols, Kernel::kPassRows, 1);
  s.add();
  return {};
}

Status lower_linear(TileLowerContext& c) {
  const auto& attrs = std::any_cast<const LinearAttrs&>(c.op().attrs);
  if (attrs.adapters) return unsupported("adapters do not run on this device yet; --device cpu runs them");
  if (attrs.has_gate) return unsupported("gates of modulation tables do not run on this device yet");
  const ValueInfo& weight = c.in(1);
  REDLINE_ASSIGN(const tiles::PanelFormat format, panel_format(weight.dtype).within(weight.name));
  // Rounding float16 or float32 weights to bfloat16 would lose bits that the model has.
  const bool is_f32 = c.options().exact_f32 || weight.dtype == DType::kF32 || weight.dtype == DType::kF16;
  if (is_f32) return lower_product<tiles::LinearF32>(c, tiles::KernelId::kLinearF32, format);
  return lower_product<tiles::Linear>(c, tiles::KernelId::kLinear, format);
}

}  // namespace

extern const TileLowering kLinearTiles = {&kLinear, lower_linear};

}  // namespace redline
