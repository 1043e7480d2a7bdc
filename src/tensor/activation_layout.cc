#include "tensor/activation_layout.h"

#include <algorithm>

namespace redline {

const char* activation_layout_name(ActivationLayout layout) {
  static constexpr const char* kNames[kNumActivationLayouts] = {"f32", "q8", "tiles", "i8", "i8_groups"};
  return kNames[static_cast<int>(layout)];
}

int ActivationLayouts::index_for_rows(int64_t rows) const {
  int i = count - 1;
  while (i > 0 && rows < at[i].min_rows) --i;
  return i;
}

int64_t ActivationLayouts::grain() const {
  int64_t most = 1;
  for (int i = 0; i < count; ++i) most = std::max(most, activation_layout_grain(at[i].layout));
  return most;
}

int64_t ActivationLayouts::bytes(int64_t rows, int64_t cols) const {
  int64_t most = 0;
  for (int i = 0; i < count; ++i) {
    const int64_t up_to = i + 1 < count ? std::min(rows, at[i + 1].min_rows - 1) : rows;
    if (up_to >= at[i].min_rows) most = std::max(most, activation_layout_bytes(at[i].layout, up_to, cols));
  }
  return most;
}

bool ActivationLayouts::operator==(const ActivationLayouts& other) const {
  if (count != other.count) return false;
  for (int i = 0; i < count; ++i)
    if (at[i].min_rows != other.at[i].min_rows || at[i].layout != other.at[i].layout) return false;
  return true;
}

}  // namespace redline
