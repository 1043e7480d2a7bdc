#include "tensor/packed_weight.h"

#include <algorithm>
#include <cstring>

#include "tensor/blocks/all.h"
#include "tensor/w8a8.h"

namespace redline {
namespace {

constexpr int64_t kLaneBytes = 4;

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// Block formats: 16 blocks, one per row, are packed into one unit.
struct StripPacking {
  int64_t unit_bytes;
  void (*pack)(const uint8_t* const* rows, uint8_t* unit);
};
template <class Format>
void pack_unit(const uint8_t* const* rows, uint8_t* unit) {
  blocks::Strip<Format>::pack(rows, unit);
}
constexpr StripPacking kBlockPacking[] = {
#define REDLINE_ROW(F) {blocks::Strip<blocks::F>::kBytes, pack_unit<blocks::F>},
    REDLINE_BLOCK_FORMATS(REDLINE_ROW)
#undef REDLINE_ROW
};
const StripPacking& block_packing(DType dtype) {
  REDLINE_CHECK(dtype_info(dtype).is_block);
  return kBlockPacking[static_cast<int>(dtype) - static_cast<int>(DType::kQ4_0)];
}
static_assert(static_cast<int>(DType::kQ4_0) + static_cast<int>(std::size(kBlockPacking)) ==
              static_cast<int>(DType::kW8A8));

// Adjacent elements of one row in a packed plain type.
int64_t lane_elements(DType dtype) { return std::max<int64_t>(1, kLaneBytes / dtype_info(dtype).block_bytes); }

void pack_w8a8(const uint8_t* const* rows, int64_t in_features, uint8_t* strip) {
  std::memset(strip, 0, static_cast<size_t>(w8a8_strip_bytes(in_features)));
  for (int64_t r = 0; r < kStripRows; ++r) {
    if (!rows[r]) continue;
    uint8_t* to = strip + r * kLaneBytes;
    for (int64_t k = 0; k < in_features; k += kLaneBytes, to += kStripRows * kLaneBytes)
      std::memcpy(to, rows[r] + k, kLaneBytes);
    std::memcpy(strip + w8a8_codes_bytes(in_features) + r * kW8A8RowBytes, rows[r] + in_features, kW8A8RowBytes);
  }
}

// Adjacent input channels of a convolution, where they are a multiple of it (kernels/cpu/conv2d.h).
constexpr int64_t kConvBlock = 32;

// One row of [in, taps] elements as [in / block, taps, block].
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
  if (dtype == DType::kW8A8) return 1;
  return dtype_info(dtype).is_block ? block_packing(dtype).unit_bytes : dtype_info(dtype).block_bytes;
}

Layout packed_layout(DType dtype, int64_t out_features, int64_t in_features) {
  const int64_t strips = round_up(out_features, kStripRows) / kStripRows;
  if (dtype == DType::kW8A8)
    return Layout({{strips, w8a8_strip_bytes(in_features)},
                   {kStripRows, kLaneBytes},
                   {w8a8_codes_bytes(in_features) / (kStripRows * kLaneBytes), kStripRows * kLaneBytes},
                   {kLaneBytes, 1}});
  if (dtype_info(dtype).is_block) {
    const int64_t units = in_features / dtype_info(dtype).block_elements;
    return Layout({{strips, units}, {units, 1}});
  }
  const int64_t lane = lane_elements(dtype);
  const int64_t steps = round_up(in_features, lane) / lane;
  // Logical index: row n = (panel, row in panel), element k = (step, element in lane).
  return Layout({{strips, steps * kStripRows * lane}, {kStripRows, lane}, {steps, kStripRows * lane}, {lane, 1}});
}

int64_t packed_bytes(DType dtype, int64_t out_features, int64_t in_features) {
  const int64_t rows = round_up(out_features, kStripRows);
  if (dtype == DType::kW8A8) return rows / kStripRows * w8a8_strip_bytes(in_features);
  if (dtype_info(dtype).is_block)
    return rows / kStripRows * (in_features / dtype_info(dtype).block_elements) * packed_unit_bytes(dtype);
  return rows * round_up(in_features, lane_elements(dtype)) * packed_unit_bytes(dtype);
}

MatrixSize packed_matrix(const TensorView& weight) {
  REDLINE_CHECK(weight.shape.size() == 2 || weight.shape.size() == 4);
  if (weight.shape.size() == 2) return {weight.shape[0], weight.shape[1]};
  return {weight.shape[0], weight.shape[1] * weight.shape[2] * weight.shape[3]};
}

int64_t packed_bytes(const TensorView& weight) {
  const MatrixSize size = packed_matrix(weight);
  return packed_bytes(weight.dtype, size.out_features, size.in_features);
}

void pack_strips(const TensorView& weight, int64_t strip_begin, int64_t strip_end, void* target,
                 const std::function<int64_t(int64_t)>& source_row) {
  const auto [out_features, in_features] = packed_matrix(weight);
  const DTypeInfo& type = dtype_info(weight.dtype);
  const int64_t taps = weight.shape.size() == 4 ? weight.shape[2] * weight.shape[3] : 1;
  REDLINE_CHECK(taps == 1 || !type.is_block);
  REDLINE_CHECK(in_features % type.block_elements == 0);
  if (in_features == 0 && type.row_bytes == 0) return;  // the target may be null
  const int64_t source_bytes = row_bytes(weight.dtype, in_features);
  const auto* source = static_cast<const uint8_t*>(weight.data);
  std::vector<uint8_t> patches(static_cast<size_t>(taps > 1 ? kStripRows * source_bytes : 0));
  const auto rows_of = [&, out_features = out_features](int64_t strip, const uint8_t** rows) {
    for (int64_t r = 0; r < kStripRows; ++r) {
      const int64_t n = strip * kStripRows + r;
      rows[r] = n < out_features ? source + (source_row ? source_row(n) : n) * source_bytes : nullptr;
      if (taps == 1 || !rows[r]) continue;
      uint8_t* own = patches.data() + r * source_bytes;
      transpose_row(type.block_bytes, rows[r], weight.shape[1], taps, own);
      rows[r] = own;
    }
  };

  if (weight.dtype == DType::kW8A8) {
    const int64_t strip_bytes = w8a8_strip_bytes(in_features);
    for (int64_t strip = strip_begin; strip < strip_end; ++strip) {
      const uint8_t* rows[kStripRows];
      rows_of(strip, rows);
      pack_w8a8(rows, in_features, static_cast<uint8_t*>(target) + strip * strip_bytes);
    }
    return;
  }

  if (type.is_block) {
    const StripPacking& packing = block_packing(weight.dtype);
    const int64_t units = in_features / type.block_elements;
    for (int64_t strip = strip_begin; strip < strip_end; ++strip) {
      uint8_t* unit = static_cast<uint8_t*>(target) + strip * units * packing.unit_bytes;
      const uint8_t* rows[kStripRows];
      rows_of(strip, rows);
      for (int64_t u = 0; u < units; ++u, unit += packing.unit_bytes) {
        packing.pack(rows, unit);
        for (const uint8_t*& row : rows)
          if (row) row += type.block_bytes;
      }
    }
    return;
  }

  const int64_t lane = lane_elements(weight.dtype);
  const int64_t lane_bytes = lane * type.block_bytes;  // contribution of one row to a 64-byte line
  const int64_t line_bytes = kStripRows * lane_bytes;
  const int64_t full_lines = in_features / lane;
  const int64_t lines = round_up(in_features, lane) / lane;

  for (int64_t strip = strip_begin; strip < strip_end; ++strip) {
    uint8_t* strip_target = static_cast<uint8_t*>(target) + strip * lines * line_bytes;
    const uint8_t* rows[kStripRows];
    rows_of(strip, rows);
    if (strip * kStripRows + kStripRows > out_features || full_lines < lines)
      std::memset(strip_target, 0, static_cast<size_t>(lines * line_bytes));

    // Lines in runs, so that the 16 rows being read and the lines being written both stay in L1.
    const int64_t run = std::max<int64_t>(1, 1024 / lane_bytes);
    for (int64_t begin = 0; begin < full_lines; begin += run) {
      const int64_t end = std::min(begin + run, full_lines);
      for (int64_t r = 0; r < kStripRows; ++r) {
        if (!rows[r]) continue;
        const uint8_t* from = rows[r] + begin * lane_bytes;
        uint8_t* to = strip_target + begin * line_bytes + r * lane_bytes;
        if (lane_bytes == kLaneBytes) {
          // A copy of constant size compiles to one move.
          for (int64_t line = begin; line < end; ++line, from += kLaneBytes, to += kStripRows * kLaneBytes)
            std::memcpy(to, from, kLaneBytes);
        } else {
          for (int64_t line = begin; line < end; ++line, from += lane_bytes, to += line_bytes)
            std::memcpy(to, from, static_cast<size_t>(lane_bytes));
        }
      }
    }
    if (full_lines < lines) {
      for (int64_t r = 0; r < kStripRows; ++r)
        if (rows[r])
          std::memcpy(strip_target + full_lines * line_bytes + r * lane_bytes, rows[r] + full_lines * lane_bytes,
                      static_cast<size_t>(source_bytes - full_lines * lane_bytes));
    }
  }
}

}  // namespace redline
