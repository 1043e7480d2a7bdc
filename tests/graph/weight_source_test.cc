#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "graph/graph.h"

namespace redline::testing {
namespace {

TEST(WeightSource, RowsInAnotherOrderAreMadeWhereTheyAre) {
  constexpr int64_t kRows = 6, kCols = 4, kRowBytes = kCols * 4;
  MappedFile::Maker maker;
  maker.piece = kRowBytes;
  maker.fill = [](int64_t begin, int64_t end, uint8_t* out) {
    for (int64_t i = 0; i < (end - begin) / 4; ++i)
      reinterpret_cast<float*>(out)[i] = static_cast<float>(begin / kRowBytes + 1);
  };
  const auto file = MappedFile::make_lazily("rows", kRows * kRowBytes, maker).value();
  // Every second row: half of the stored ones, of which the last lies beyond the bytes of a view with as many rows.
  WeightSource source;
  source.view = {DType::kF32, {kRows / 2, kCols}, file->data()};
  source.file = file;
  source.source_row = [](int64_t n) { return 2 * n + 1; };
  source.need_all();
  const auto* values = reinterpret_cast<const float*>(file->data());
  for (int64_t n = 0; n < kRows / 2; ++n)
    EXPECT_EQ(values[source.source_row(n) * kCols], static_cast<float>(source.source_row(n) + 1)) << n;
}

}  // namespace
}  // namespace redline::testing
