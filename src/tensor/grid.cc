#include "tensor/grid.h"

namespace redline {

Grid::Grid(std::vector<std::string> axes, int halvings) {
  for (const std::string& name : axes) {
    std::vector<Symbol>& extents = axes_.emplace_back();
    for (int i = 0; i <= halvings; ++i)
      extents.push_back(extent_symbol(i == 0 ? name : fmt::format("{}/{}", name, int64_t{1} << i)));
  }
}

Dim Grid::extent(size_t axis, int halvings) const {
  REDLINE_CHECK(axis < axes_.size() && halvings < std::ssize(axes_[axis]));
  return axes_[axis][static_cast<size_t>(halvings)];
}

void Grid::set(SymbolValues& values, std::span<const int64_t> sizes) const {
  REDLINE_CHECK(sizes.size() == axes_.size());
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    int64_t size = sizes[axis];
    for (const Symbol extent : axes_[axis]) {
      values[extent] = size;
      size = (size + 1) / 2;
    }
  }
}

Grid image_grid(int halvings) { return Grid({"height", "width"}, halvings); }

}  // namespace redline
