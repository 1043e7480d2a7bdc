#include "tensor/packed_weight.h"

#include <algorithm>
#include <cstring>

namespace redline {
namespace {

constexpr int64_t kStripRows = 16;
constexpr int64_t kLaneBytes = 4;

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// How a row of a type is cut: `lane_units` units of one row lie side by side, then those of the next row of the strip.
struct Cut {
  int64_t unit_bytes;
  int64_t lane_units;
};
Cut cut_of(DType dtype) {
  const DTypeInfo& t = dtype_info(dtype);
  return {t.block_bytes, t.is_block ? 1 : std::max<int64_t>(1, kLaneBytes / t.block_bytes)};
}

}  // namespace

int64_t packed_unit_elements(DType dtype) { return dtype_info(dtype).block_elements; }
int64_t packed_unit_bytes(DType dtype) { return dtype_info(dtype).block_bytes; }

Layout packed_layout(DType dtype, int64_t out_features, int64_t in_features) {
  const int64_t lane = cut_of(dtype).lane_units;
  const int64_t strips = round_up(out_features, kStripRows) / kStripRows;
  const int64_t steps = round_up(in_features / packed_unit_elements(dtype), lane) / lane;
  // Logical index: row n = (strip, row in strip), unit k = (step, unit in lane).
  return Layout({{strips, steps * kStripRows * lane}, {kStripRows, lane}, {steps, kStripRows * lane}, {lane, 1}});
}

int64_t packed_bytes(DType dtype, int64_t out_features, int64_t in_features) {
  const int64_t units = round_up(in_features / packed_unit_elements(dtype), cut_of(dtype).lane_units);
  return round_up(out_features, kStripRows) * units * packed_unit_bytes(dtype);
}

void pack_strips(const TensorView& weight, int64_t strip_begin, int64_t strip_end, void* target,
                 const std::function<int64_t(int64_t)>& source_row) {
  REDLINE_CHECK(weight.shape.size() == 2);
  const int64_t out_features = weight.shape[0], in_features = weight.shape[1];
  REDLINE_CHECK(in_features % packed_unit_elements(weight.dtype) == 0);
  const Cut cut = cut_of(weight.dtype);
  const int64_t units = in_features / packed_unit_elements(weight.dtype);
  if (units == 0) return;                                      // the target may be null
  const int64_t source_bytes = units * cut.unit_bytes;         // of one row
  const int64_t lane_bytes = cut.lane_units * cut.unit_bytes;  // what one row adds to a line
  const int64_t line_bytes = kStripRows * lane_bytes;
  const int64_t full_lines = units / cut.lane_units;
  const int64_t lines = round_up(units, cut.lane_units) / cut.lane_units;
  const auto* source = static_cast<const uint8_t*>(weight.data);

  for (int64_t strip = strip_begin; strip < strip_end; ++strip) {
    uint8_t* strip_target = static_cast<uint8_t*>(target) + strip * lines * line_bytes;
    const uint8_t* rows[kStripRows];
    for (int64_t r = 0; r < kStripRows; ++r) {
      const int64_t n = strip * kStripRows + r;
      rows[r] = n < out_features ? source + (source_row ? source_row(n) : n) * source_bytes : nullptr;
    }
    if (strip * kStripRows + kStripRows > out_features || full_lines < lines)
      std::memset(strip_target, 0, static_cast<size_t>(lines * line_bytes));

    // Lines in runs, so that both the 16 rows being read and the lines being written stay in the first-level cache.
    const int64_t run = std::max<int64_t>(1, 1024 / lane_bytes);
    for (int64_t begin = 0; begin < full_lines; begin += run) {
      const int64_t end = std::min(begin + run, full_lines);
      for (int64_t r = 0; r < kStripRows; ++r) {
        if (!rows[r]) continue;
        const uint8_t* from = rows[r] + begin * lane_bytes;
        uint8_t* to = strip_target + begin * line_bytes + r * lane_bytes;
        if (lane_bytes == kLaneBytes) {
          // A copy of known size is one move.
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
