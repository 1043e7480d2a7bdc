#include "tensor/grid.h"

#include <gtest/gtest.h>

namespace redline {
namespace {

TEST(Grid, HalvingsRoundUp) {
  const Grid grid = image_grid(3);
  SymbolValues values;
  const int64_t sizes[] = {9, 4};
  grid.set(values, sizes);
  for (const auto& [halvings, height, width] : {std::tuple{0, 9, 4}, {1, 5, 2}, {2, 3, 1}, {3, 2, 1}}) {
    EXPECT_EQ(grid.extent(0, halvings).eval(values), height) << halvings;
    EXPECT_EQ(grid.extent(1, halvings).eval(values), width) << halvings;
  }
  EXPECT_EQ((grid.extent(0) * grid.extent(1, 1) + 3).to_string(), "height*width/2 + 3");
}

// The networks of a pipeline are compiled for the same bounds, so their extents of one name must be one symbol.
TEST(Grid, EqualNamesAreOneSymbol) {
  EXPECT_EQ(image_grid().extent(1), image_grid(2).extent(1));
  EXPECT_EQ(Grid({"frames", "height", "width"}).extent(1), image_grid().extent(0));
  EXPECT_NE(image_grid(1).extent(1, 1), image_grid(1).extent(1));
  EXPECT_EQ(symbol_name(extent_symbol("height")), "height");
  EXPECT_EQ(extent_symbol("height"), extent_symbol("height"));
}

TEST(Grid, SetsOnlyItsOwnExtents) {
  SymbolValues values;
  values[Symbol::kTokens] = 7;
  const int64_t sizes[] = {2, 5, 6};
  Grid({"frames", "height", "width"}).set(values, sizes);
  int64_t sum = 0;
  for (const int64_t value : values.value) sum += value;
  EXPECT_EQ(sum, 7 + 2 + 5 + 6);
  Grid().set(values, {});
  EXPECT_EQ(Grid().num_axes(), 0u);
}

}  // namespace
}  // namespace redline
