#include "tensor/packed_weight.h"

#include <algorithm>
#include <cstring>

#include "tensor/blocks/all.h"

namespace redline {
namespace {

constexpr int64_t kLaneBytes = 4;

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// Describes how a quantized format is packed. The units of a block format are panel blocks of 16 rows x one block; the
// units of a format with a scale per row are single codes. The layout orders units.
struct Packing {
  int64_t unit_bytes;
  int64_t (*panel_bytes)(int64_t in_features);
  Layout (*layout)(int64_t panels, int64_t in_features);
  /// Packs a row panel. rows[r]: the stored row; nullptr past the last row, which is packed as zeros.
  void (*pack_panel)(const uint8_t* const* rows, int64_t in_features, uint8_t* panel);
};
template <class Format>
struct PackBlocks {
  static constexpr int64_t kUnitBytes = blocks::RowPanel<Format>::kBytes;
  static int64_t panel_bytes(int64_t in_features) { return in_features / Format::kElements * kUnitBytes; }
  static Layout layout(int64_t panels, int64_t in_features) {
    const int64_t units = in_features / Format::kElements;
    return Layout({{panels, units}, {units, 1}});
  }
  static void pack_panel(const uint8_t* const* rows, int64_t in_features, uint8_t* panel) {
    const uint8_t* at[kRowPanelRows];
    std::copy_n(rows, kRowPanelRows, at);
    for (int64_t k = 0; k < in_features; k += Format::kElements, panel += kUnitBytes) {
      blocks::RowPanel<Format>::pack(at, panel);
      for (const uint8_t*& row : at)
        if (row) row += Format::kBytes;
    }
  }
};
template <class Format>
struct PackRows {
  static constexpr int64_t kUnitBytes = 1;
  static int64_t panel_bytes(int64_t in_features) { return Format::panel_bytes(in_features); }
  static Layout layout(int64_t panels, int64_t in_features) {
    constexpr int64_t kLine = kRowPanelRows * kLaneBytes;
    return Layout({{panels, Format::panel_bytes(in_features)},
                   {kRowPanelRows, kLaneBytes},
                   {Format::codes_bytes(in_features) / kLine, kLine},
                   {kLaneBytes, 1}});
  }
  static void pack_panel(const uint8_t* const* rows, int64_t in_features, uint8_t* panel) {
    Format::pack_panel(rows, in_features, panel);
  }
};
template <class Pack>
constexpr Packing packing() {
  return {Pack::kUnitBytes, Pack::panel_bytes, Pack::layout, Pack::pack_panel};
}
constexpr Packing kPackings[] = {
#define REDLINE_ROW(F) packing<PackBlocks<blocks::F>>(),
    REDLINE_BLOCK_FORMATS(REDLINE_ROW)
#undef REDLINE_ROW
#define REDLINE_ROW(F) packing<PackRows<blocks::F>>(),
        REDLINE_ROW_FORMATS(REDLINE_ROW)
#undef REDLINE_ROW
};
constexpr int kNumPlainTypes = kNumDTypes - static_cast<int>(std::size(kPackings));

/// Returns how a type is packed; nullptr for a plain type.
const Packing* packing_of(DType dtype) {
  const int i = static_cast<int>(dtype) - kNumPlainTypes;
  return i < 0 ? nullptr : &kPackings[i];
}

// Returns the number of elements of one row that are adjacent in a packed plain type.
int64_t lane_elements(DType dtype) { return std::max<int64_t>(1, kLaneBytes / dtype_info(dtype).block_bytes); }

// Copies one row of [in, taps] elements in the order [in / block, taps, block].
template <class Element>
void transpose_row(const uint8_t* from, int64_t in, int64_t taps, uint8_t* to) {
  const int64_t block = in % kConvBlock == 0 ? kConvBlock : in;
  for (int64_t c = 0; c < in; ++c)
    for (int64_t t = 0; t < taps; ++t)
      std::memcpy(to + ((c / block * taps + t) * block + c % block) * int64_t{sizeof(Element)},
                  from + (c * taps + t) * int64_t{sizeof(Element)}, sizeof(Element));
}
void transpose_row(int64_t element_bytes, const uint8_t* from, int64_t in, int64_t taps, uint8_t* to) {
  switch (element_bytes) {
    case 1: return transpose_row<uint8_t>(from, in, taps, to);
    case 2: return transpose_row<uint16_t>(from, in, taps, to);
    case 4: return transpose_row<uint32_t>(from, in, taps, to);
    case 8: return transpose_row<uint64_t>(from, in, taps, to);
    default: REDLINE_CHECK(false);
  }
}

}  // namespace

int64_t packed_unit_bytes(DType dtype) {
  const Packing* packing = packing_of(dtype);
  return packing ? packing->unit_bytes : dtype_info(dtype).block_bytes;
}

Layout packed_layout(DType dtype, int64_t out_features, int64_t in_features) {
  const int64_t row_panels = round_up(out_features, kRowPanelRows) / kRowPanelRows;
  if (const Packing* packing = packing_of(dtype)) return packing->layout(row_panels, in_features);
  const int64_t lane = lane_elements(dtype);
  const int64_t steps = round_up(in_features, lane) / lane;
  // Logical index: row n = (panel, row in panel), element k = (step, element in lane).
  return Layout(
      {{row_panels, steps * kRowPanelRows * lane}, {kRowPanelRows, lane}, {steps, kRowPanelRows * lane}, {lane, 1}});
}

int64_t packed_bytes(DType dtype, int64_t out_features, int64_t in_features) {
  const int64_t rows = round_up(out_features, kRowPanelRows);
  if (const Packing* packing = packing_of(dtype)) return rows / kRowPanelRows * packing->panel_bytes(in_features);
  return rows * round_up(in_features, lane_elements(dtype)) * packed_unit_bytes(dtype);
}

MatrixSize packed_matrix(const TensorView& weight) {
  REDLINE_CHECK(weight.shape.size() >= 2);
  int64_t in_features = 1;
  for (size_t i = 1; i < weight.shape.size(); ++i) in_features *= weight.shape[i];
  return {weight.shape[0], in_features};
}

int64_t packed_bytes(const TensorView& weight) {
  const MatrixSize size = packed_matrix(weight);
  return packed_bytes(weight.dtype, size.out_features, size.in_features);
}

void pack_row_panels(const TensorView& weight, int64_t row_panel_begin, int64_t row_panel_end, void* target,
                     const std::function<int64_t(int64_t)>& source_row) {
  const auto [out_features, in_features] = packed_matrix(weight);
  const DTypeInfo& type = dtype_info(weight.dtype);
  int64_t taps = 1;
  for (size_t i = 2; i < weight.shape.size() && !type.is_block; ++i) taps *= weight.shape[i];
  REDLINE_CHECK(in_features % type.block_elements == 0);
  if (in_features == 0 && type.row_bytes == 0) return;  // the target may be null
  const int64_t source_bytes = row_bytes(weight.dtype, in_features);
  const auto* source = static_cast<const uint8_t*>(weight.data);
  std::vector<uint8_t> patches(static_cast<size_t>(taps > 1 ? kRowPanelRows * source_bytes : 0));
  const auto rows_of = [&, out_features = out_features](int64_t row_panel, const uint8_t** rows) {
    for (int64_t r = 0; r < kRowPanelRows; ++r) {
      const int64_t n = row_panel * kRowPanelRows + r;
      rows[r] = n < out_features ? source + (source_row ? source_row(n) : n) * source_bytes : nullptr;
      if (taps == 1 || !rows[r]) continue;
      uint8_t* own = patches.data() + r * source_bytes;
      transpose_row(type.block_bytes, rows[r], weight.shape[1], taps, own);
      rows[r] = own;
    }
  };

  if (const Packing* packing = packing_of(weight.dtype)) {
    const int64_t panel_bytes = packing->panel_bytes(in_features);
    for (int64_t row_panel = row_panel_begin; row_panel < row_panel_end; ++row_panel) {
      const uint8_t* rows[kRowPanelRows];
      rows_of(row_panel, rows);
      packing->pack_panel(rows, in_features, static_cast<uint8_t*>(target) + row_panel * panel_bytes);
    }
    return;
  }

  const int64_t lane = lane_elements(weight.dtype);
  const int64_t lane_bytes = lane * type.block_bytes;  // contribution of one row to a 64-byte line
  const int64_t line_bytes = kRowPanelRows * lane_bytes;
  const int64_t full_lines = in_features / lane;
  const int64_t lines = round_up(in_features, lane) / lane;

  for (int64_t row_panel = row_panel_begin; row_panel < row_panel_end; ++row_panel) {
    uint8_t* row_panel_target = static_cast<uint8_t*>(target) + row_panel * lines * line_bytes;
    const uint8_t* rows[kRowPanelRows];
    rows_of(row_panel, rows);
    if (row_panel * kRowPanelRows + kRowPanelRows > out_features || full_lines < lines)
      std::memset(row_panel_target, 0, static_cast<size_t>(lines * line_bytes));

    // Lines in runs, so that the 16 rows being read and the lines being written both stay in L1.
    const int64_t run = std::max<int64_t>(1, 1024 / lane_bytes);
    for (int64_t begin = 0; begin < full_lines; begin += run) {
      const int64_t end = std::min(begin + run, full_lines);
      for (int64_t r = 0; r < kRowPanelRows; ++r) {
        if (!rows[r]) continue;
        const uint8_t* from = rows[r] + begin * lane_bytes;
        uint8_t* to = row_panel_target + begin * line_bytes + r * lane_bytes;
        if (lane_bytes == kLaneBytes) {
          // A copy of constant size compiles to one move.
          for (int64_t line = begin; line < end; ++line, from += kLaneBytes, to += kRowPanelRows * kLaneBytes)
            std::memcpy(to, from, kLaneBytes);
        } else {
          for (int64_t line = begin; line < end; ++line, from += lane_bytes, to += line_bytes)
            std::memcpy(to, from, static_cast<size_t>(lane_bytes));
        }
      }
    }
    if (full_lines < lines) {
      for (int64_t r = 0; r < kRowPanelRows; ++r)
        if (rows[r])
          std::memcpy(row_panel_target + full_lines * line_bytes + r * lane_bytes, rows[r] + full_lines * lane_bytes,
                      static_cast<size_t>(source_bytes - full_lines * lane_bytes));
    }
  }
}

}  // namespace redline
