#include "kernels/cpu/linear_choice.h"

#include <algorithm>

namespace redline {
namespace {

// From this many rows on a pass of bfloat16 tiles, which takes as long for 16 rows as for one, costs less than products row by
// row: of floats in float32, of codes in integers (docs/performance.md).
constexpr int64_t kTilesFromRowsOfFloats = 5, kTilesFromRowsOfCodes = 17;

}  // namespace

const char* x_form_name(XForm form) {
  static constexpr const char* kNames[kNumXForms] = {"f32", "q8", "tiles"};
  return kNames[static_cast<int>(form)];
}

XForm XForms::for_rows(int64_t rows) const {
  int i = count - 1;
  while (i > 0 && rows < at[i].min_rows) --i;
  return at[i].form;
}

int64_t XForms::bytes(int64_t rows, int64_t cols) const {
  int64_t most = 0;
  for (int i = 0; i < count; ++i) {
    const int64_t up_to = i + 1 < count ? std::min(rows, at[i + 1].min_rows - 1) : rows;
    if (up_to >= at[i].min_rows) most = std::max(most, x_form_bytes(at[i].form, up_to, cols));
  }
  return most;
}

bool XForms::operator==(const XForms& other) const {
  if (count != other.count) return false;
  for (int i = 0; i < count; ++i)
    if (at[i].min_rows != other.at[i].min_rows || at[i].form != other.at[i].form) return false;
  return true;
}

void (*LinearKernels::for_rows(int64_t rows) const)(const LinearArgs&) {
  int i = forms.count - 1;
  while (i > 0 && rows < forms.at[i].min_rows) --i;
  return run[i];
}

LinearKernels choose_linear(const CpuKernels& table, DType weight, bool exact_f32) {
  const auto type = static_cast<size_t>(weight);
  LinearKernels kernels;
  kernels.run[0] = table.linear[type];
  if (exact_f32) return kernels;
  if (table.linear_q8[type]) {
    kernels.forms.at[0].form = XForm::kQ8;
    kernels.run[0] = table.linear_q8[type];
  }
  if (table.has_tile_unit && table.linear_tiles[type]) {
    kernels.forms.at[kernels.forms.count] = {table.linear_q8[type] ? kTilesFromRowsOfCodes : kTilesFromRowsOfFloats,
                                             XForm::kTiles};
    kernels.run[kernels.forms.count++] = table.linear_tiles[type];
  }
  return kernels;
}

}  // namespace redline
