#include "backends/tiles/panel_format.h"

#include <algorithm>
#include <type_traits>

#include "tensor/blocks/all.h"
#include "tensor/packed_weight.h"

namespace redline {
namespace {

using tiles::Head;
using tiles::PanelFormat;
using tiles::Planes;

template <class Format>
constexpr Planes planes_of() {
  using P = typename Format::Planes;
  if constexpr (std::is_same_v<P, blocks::Planes8>) return Planes::k8;
  else if constexpr (std::is_same_v<P, blocks::Planes4>) return Planes::k4;
  else if constexpr (std::is_same_v<P, blocks::Planes2>) return Planes::k2;
  else if constexpr (std::is_same_v<P, blocks::Planes3>) return Planes::k3;
  else if constexpr (std::is_same_v<P, blocks::Planes5>) return Planes::k5;
  else {
    static_assert(std::is_same_v<P, blocks::Planes6>, "kernels/tiles/panel.h has no decoder of these planes");
    return Planes::k6;
  }
}

template <class T>
struct HeadKind;  // kernels/tiles/panel.h has no decoder of a head that is not listed here
template <int kAt>
struct HeadKind<blocks::HalfHead<kAt>> {
  static constexpr Head kKind = Head::kHalf;
};
template <>
struct HeadKind<blocks::HalfPairHead> {
  static constexpr Head kKind = Head::kHalfPair;
};
template <>
struct HeadKind<blocks::ExponentHead> {
  static constexpr Head kKind = Head::kExponent;
};
template <class Format, int kAt>
struct HeadKind<blocks::SubScaleHead<Format, kAt>> {
  static constexpr Head kKind = Head::kSubScale;
};
template <class Format>
struct HeadKind<blocks::ScaleMinHead<Format>> {
  static constexpr Head kKind = Head::kScaleMin;
};
template <int kAt>
struct HeadKind<blocks::NibbleScaleMinHead<kAt>> {
  static constexpr Head kKind = Head::kNibbleScaleMin;
};

template <class Format>
PanelFormat format_of() {
  using RowPanel = blocks::RowPanel<Format>;
  PanelFormat f = {};
  f.planes = planes_of<Format>();
  f.head = HeadKind<typename Format::Head>::kKind;
  f.has_mins = Format::kHasMins;
  f.elements = Format::kElements;
  f.unit_bytes = RowPanel::kBytes;
  f.head_bytes = RowPanel::kHeadBytes;
  f.step_bytes = RowPanel::kStepBytes;
  f.group = Format::kGroup;
  f.offset = Format::kOffset;
  if constexpr (RowPanel::kHasTable) {
    f.has_table = 1;
    std::copy_n(Format::kTable, 16, f.table);
  }
  return f;
}

PanelFormat plain(Planes planes, int32_t elements) {
  PanelFormat f = {};
  f.planes = planes;
  f.elements = elements;
  f.unit_bytes = 64;
  f.group = 16;
  return f;
}

/// Returns the format with codes in units of 64 elements, then a scale for each row (blocks::W8A8::pack_panel).
PanelFormat codes_with_row_scales() {
  using blocks::W8A8;
  PanelFormat f = {};
  f.planes = Planes::kI8;
  f.elements = W8A8::kTileElements;
  f.unit_bytes = W8A8::kTileBytes;
  f.step_bytes = W8A8::kTileBytes / 2;
  f.group = 32;
  f.offset = 128;
  f.row_scale_bytes = kRowPanelRows * W8A8::kRowBytes;
  return f;
}

}  // namespace

Result<PanelFormat> panel_format(DType dtype) {
  switch (dtype) {
    case DType::kF32: return plain(Planes::kF32, 1);
    case DType::kF16: return plain(Planes::kF16, 2);
    case DType::kBF16: return plain(Planes::kBF16, 2);
#define REDLINE_ROW(F) \
  case DType::k##F: return format_of<blocks::F>();
      REDLINE_BLOCK_FORMATS(REDLINE_ROW)
#undef REDLINE_ROW
    case DType::kW8A8: return codes_with_row_scales();
    default: return unsupported("weights of type {} have no kernel on this device", dtype_info(dtype).name);
  }
}

}  // namespace redline
