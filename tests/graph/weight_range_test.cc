// Parts of weights: equal to the rows and columns of the whole, in every weight format, packed or unpacked, and made of
// files that compute their bytes on demand.
#include "graph/weight_range.h"

#include <gmock/gmock.h>

#include <cstring>
#include <set>

#include "base/mapped_file.h"
#include "support/random_weight.h"
#include "tensor/packed_weight.h"

namespace redline::testing {
namespace {

using ::testing::HasSubstr;

/// The rows of a source as the kernels' packing and the interpreter read them, in float32.
std::vector<float> unpack(const WeightSource& source) {
  const int64_t rows = source.view.shape[0], cols = source.view.shape.size() > 1 ? source.view.shape[1] : 1;
  std::vector<float> values(static_cast<size_t>(rows * cols));
  source.need_all();
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t from = source.source_row ? source.source_row(r) : r;
    unpack_row(source.view.dtype,
               static_cast<const uint8_t*>(source.view.data) + from * row_bytes(source.view.dtype, cols),
               values.data() + r * cols, cols);
  }
  return values;
}

std::vector<uint8_t> pack(const WeightSource& source) {
  std::vector<uint8_t> packed(static_cast<size_t>(packed_bytes(source.view)));
  const int64_t panels = (source.view.shape[0] + kRowPanelRows - 1) / kRowPanelRows;
  source.need_all();
  pack_row_panels(source.view, 0, panels, packed.data(), source.source_row);
  return packed;
}

/// A file of these bytes. `is_lazy`: they are computed when they are needed, row by row, and counted.
std::shared_ptr<const MappedFile> file_of(const std::vector<uint8_t>& bytes, int64_t row, bool is_lazy,
                                          std::shared_ptr<std::set<int64_t>> made = {}) {
  if (!is_lazy) return MappedFile::from_bytes("weights", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  MappedFile::Maker maker;
  maker.piece = row;
  maker.identity = 77;
  maker.fill = [=](int64_t begin, int64_t end, uint8_t* out) {
    std::copy(bytes.begin() + begin, bytes.begin() + end, out);
    if (made) made->insert(begin / row);
  };
  return MappedFile::make_lazily("weights", std::ssize(bytes), std::move(maker)).value();
}

WeightSource source_of(const RandomWeight& weight, bool is_lazy, std::shared_ptr<std::set<int64_t>> made = {}) {
  WeightSource source;
  source.file = file_of(weight.bytes, row_bytes(weight.dtype, weight.k), is_lazy, std::move(made));
  source.view = {weight.dtype, {weight.n, weight.k}, source.file->data()};
  return source;
}

TEST(WeightRange, PartsOfEveryFormatAreTheRowsAndColumnsOfTheWhole) {
  constexpr int64_t kRows = 37, kCols = 768;
  for (const DType dtype : weight_types()) {
    const int64_t block = dtype_info(dtype).block_elements;
    const RandomWeight weight = RandomWeight(dtype, kRows, kCols, 5);
    for (const bool is_lazy : {false, true})
      for (const bool is_reversed : {false, true}) {
        WeightSource source = source_of(weight, is_lazy);
        if (is_reversed) source.source_row = [](int64_t n) { return kRows - 1 - n; };
        const std::vector<float> whole = unpack(source);
        for (const WeightRange& range :
             {WeightRange{0, kRows, 0, kCols}, WeightRange{0, 1, 0, kCols}, WeightRange{16, 21, 0, kCols},
              WeightRange{0, kRows, 0, kCols / 2 / block * block}, WeightRange{0, kRows, 256, 512},
              WeightRange{3, 17, 512, 256}, WeightRange{36, 1, kCols - block, block}}) {
          if (range.cols == 0) continue;
          SCOPED_TRACE(fmt::format("{} {}{}{}", dtype_info(dtype).name, range.to_string(), is_lazy ? " lazy" : "",
                                   is_reversed ? " reversed" : ""));
          const Result<WeightSource> part = take_range("w", source, range);
          ASSERT_TRUE(part.ok()) << part.status().to_string();
          ASSERT_EQ(part->view.shape, (std::vector<int64_t>{range.rows, range.cols}));
          const std::vector<float> values = unpack(*part);
          for (int64_t r = 0; r < range.rows; ++r)
            ASSERT_EQ(std::memcmp(values.data() + r * range.cols,
                                  whole.data() + (range.row_begin + r) * kCols + range.col_begin,
                                  static_cast<size_t>(range.cols) * sizeof(float)),
                      0)
                << "row " << r;
          // Packing gives the same bytes after the bytes of the part have been released and made again.
          const std::vector<uint8_t> packed = pack(*part);
          const int64_t at = static_cast<const uint8_t*>(part->view.data) - part->file->data();
          if (!part->is_shared) part->file->release(at, part->view.bytes());
          EXPECT_EQ(pack(*part), packed);
        }
      }
  }
}

TEST(WeightRange, OnlyTheRowsOfThePartAreMade) {
  const RandomWeight weight = RandomWeight(DType::kQ8_0, 40, 64, 3);
  const auto made = std::make_shared<std::set<int64_t>>();
  const WeightSource source = source_of(weight, true, made);
  const WeightSource rows = take_range("w", source, {8, 16, 0, 64}).value();
  const WeightSource columns = take_range("w", source, {30, 4, 32, 32}).value();
  EXPECT_TRUE(made->empty()) << "a part alone reads nothing";
  (void)unpack(rows);
  EXPECT_EQ(made->size(), 16u);
  EXPECT_TRUE(made->contains(8) && made->contains(23));
  made->clear();
  (void)unpack(columns);
  EXPECT_EQ(*made, (std::set<int64_t>{30, 31, 32, 33}));
  EXPECT_EQ(columns.file->size(), 4 * row_bytes(DType::kQ8_0, 32)) << "a part takes its own bytes only";
  EXPECT_NE(columns.file->identity(), source.file->identity());
  EXPECT_NE(columns.file->identity(), take_range("w", source, {30, 4, 0, 32})->file->identity());
}

TEST(WeightRange, Vectors) {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  WeightSource source;
  source.view = {DType::kF32, {6}, values.data()};
  EXPECT_EQ(unpack(take_range("b", source, {2, 3, 0, 1}).value()), (std::vector<float>{2, 3, 4}));
  source.source_row = [](int64_t n) { return n ^ 1; };  // pairs change places
  EXPECT_EQ(unpack(take_range("b", source, {2, 2, 0, 1}).value()), (std::vector<float>{3, 2}));
  source.source_row = [](int64_t n) { return 5 - n; };
  EXPECT_EQ(unpack(take_range("b", source, {0, 2, 0, 1}).value()), (std::vector<float>{5, 4}));
}

TEST(WeightRange, RangesThatCannotBeTakenNameTheWeight) {
  const RandomWeight weight = RandomWeight(DType::kQ4_K, 4, 512, 1);
  WeightSource source = source_of(weight, false);
  const auto error = [&](const WeightRange& range) { return take_range("model.w", source, range).status(); };
  EXPECT_EQ(error({0, 4, 128, 256}).code(), Code::unsupported);
  EXPECT_THAT(error({0, 4, 128, 256}).message(),
              HasSubstr("tensor model.w: columns [128, 384) cut through blocks of q4_k, which hold 256 elements"));
  EXPECT_EQ(error({0, 5, 0, 512}).code(), Code::invalid_argument);
  EXPECT_THAT(error({0, 5, 0, 512}).message(), HasSubstr("[0:5, 0:512] is not within [4, 512]"));
  EXPECT_EQ(error({-1, 2, 0, 512}).code(), Code::invalid_argument);
  EXPECT_EQ(error({0, 4, 0, 0}).code(), Code::invalid_argument);
  // GPTQ with act-order: rows are taken, columns are not.
  source.columns = std::make_shared<std::vector<int32_t>>(512);
  EXPECT_TRUE(take_range("model.w", source, {1, 2, 0, 512})->columns != nullptr);
  EXPECT_THAT(error({0, 4, 0, 256}).message(), HasSubstr("act-order"));
  const std::vector<float> kernel(8);
  WeightSource convolution;
  convolution.view = {DType::kF32, {2, 2, 2}, kernel.data()};
  EXPECT_THAT(take_range("conv", convolution, {0, 1, 0, 2}).status().message(), HasSubstr("has 3 axes"));
}

TEST(WeightRange, RangesFollowFromTheRankAxisOfALayout) {
  for (const int64_t ranks : {1, 2, 3, 6})
    for (int64_t r = 0; r < ranks; ++r) {
      const int64_t rows = 12, cols = 18;
      const Layout by_rows = sharded_layout(rows, cols, ShardedAxis::kRows, ranks);
      const Layout by_cols = sharded_layout(rows, cols, ShardedAxis::kColumns, ranks);
      EXPECT_EQ(range_of_rank(by_rows, rows, cols, r).value(), (WeightRange{r * rows / ranks, rows / ranks, 0, cols}));
      EXPECT_EQ(range_of_rank(by_cols, rows, cols, r).value(), (WeightRange{0, rows, r * cols / ranks, cols / ranks}));
      EXPECT_FALSE(gives_partial_sums(by_rows, rows, cols).value());
      EXPECT_EQ(gives_partial_sums(by_cols, rows, cols).value(), ranks > 1);
      // The layout is that of the parts: it maps each element to its rank, and to its place in the rank's part.
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t col = 0; col < cols; ++col) {
          const Place place = by_cols.apply(row * cols + col);
          const int64_t part = cols / ranks;
          EXPECT_EQ(place[static_cast<size_t>(Axis::kRank)], col / part);
          EXPECT_EQ(place[static_cast<size_t>(Axis::kMemory)], row * part + col % part);
        }
    }
  const Layout vector = sharded_layout(12, 1, ShardedAxis::kRows, 3);
  EXPECT_EQ(range_of_rank(vector, 12, 1, 1).value(), (WeightRange{4, 4, 0, 1}));
  EXPECT_EQ(range_of_rank(vector, 12, 1, 3).status().code(), Code::invalid_argument);
  // Ranks that hold every second row do not hold a range.
  const Layout cyclic({{6, 4}, {2, 1, Axis::kRank}, {4, 1}});
  EXPECT_EQ(range_of_rank(cyclic, 12, 4, 0).status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace redline::testing
