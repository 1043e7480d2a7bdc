// Sizes of feature maps, by the extents that the networks of image models declare.
#pragma once

#include "tensor/grid.h"

namespace redline::testing {

inline const Symbol kHeight = extent_symbol("height"), kWidth = extent_symbol("width");

/// Sets height and width, and their sizes after one to three halvings.
inline void set_image_size(SymbolValues& values, int64_t height, int64_t width) {
  const int64_t sizes[] = {height, width};
  image_grid(3).set(values, sizes);
}

}  // namespace redline::testing
