// The axes of a network's feature maps, and the sizes that follow from them by halving.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tensor/dim.h"

namespace redline {

/// Named axes of feature maps: "height" and "width" of an image, with "frames" before them for video. Each axis has an
/// extent for its own size, and one for its size after every halving, as strided convolutions make it. A network
/// declares its grid and builds its shapes from the extents; callers give the sizes of a step by set().
class Grid {
 public:
  /// A grid without axes: the network has no feature maps.
  Grid() = default;
  /// `halvings`: how often the network halves an axis at most.
  explicit Grid(std::vector<std::string> axes, int halvings = 0);

  size_t num_axes() const { return axes_.size(); }
  /// Returns the size of axis `axis` after `halvings` divisions by two, each rounded up.
  Dim extent(size_t axis, int halvings = 0) const;
  /// Sets the extents of all axes to those of a feature map with the given sizes, in the order of the axes.
  void set(SymbolValues& values, std::span<const int64_t> sizes) const;

 private:
  std::vector<std::vector<Symbol>> axes_;  ///< the extents of each axis, by number of halvings
};

/// The grid of two-dimensional feature maps: "height", then "width".
Grid image_grid(int halvings = 0);

}  // namespace redline
