// Plain types: packing equals packed_layout, element by element; what no element maps to is zero. Block formats: what
// the row panels hold are the values of the file's own blocks, bit for bit.
#include "tensor/packed_weight.h"
#include "tensor/blocks/w8a8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tensor/blocks/all.h"

namespace redline {
namespace {

std::vector<uint8_t> random_bytes(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random() % 255 + 1);  // never zero, unlike padding
  return bytes;
}

void check(DType dtype, int64_t n, int64_t k, const std::function<int64_t(int64_t)>& source_row = {}) {
  SCOPED_TRACE(::testing::Message() << dtype_info(dtype).name << " " << n << " x " << k);
  const std::vector<uint8_t> source = random_bytes(row_bytes(dtype, k) * n, static_cast<uint32_t>(n * 31 + k));
  const int64_t bytes = packed_bytes(dtype, n, k), unit = packed_unit_bytes(dtype);
  // Two calls, and bytes around that must stay.
  std::vector<uint8_t> target(static_cast<size_t>(bytes + 64), 0xee);
  const TensorView view{dtype, {n, k}, source.data()};
  const int64_t row_panels = (n + 15) / 16;
  pack_row_panels(view, row_panels / 2, row_panels, target.data(), source_row);
  pack_row_panels(view, 0, row_panels / 2, target.data(), source_row);
  for (size_t i = static_cast<size_t>(bytes); i < target.size(); ++i) ASSERT_EQ(target[i], 0xee);

  const Layout layout = packed_layout(dtype, n, k);
  const int64_t units = k;
  const int64_t padded_rows = row_panels * 16;
  ASSERT_EQ(layout.size() * unit, bytes);
  ASSERT_EQ(layout.span(Axis::kMemory) * unit, bytes);
  const int64_t padded_units = layout.size() / padded_rows;
  ASSERT_GE(padded_units, units);
  const std::vector<uint8_t> zero(static_cast<size_t>(unit), 0);
  for (int64_t row = 0; row < padded_rows; ++row) {
    for (int64_t u = 0; u < padded_units; ++u) {
      const uint8_t* got = target.data() + layout.memory(row * padded_units + u) * unit;
      const bool is_element = row < n && u < units;
      const int64_t from = is_element && source_row ? source_row(row) : row;
      const uint8_t* expected = is_element ? source.data() + (from * units + u) * unit : zero.data();
      ASSERT_EQ(std::memcmp(got, expected, static_cast<size_t>(unit)), 0) << "row " << row << " unit " << u;
    }
  }
}

TEST(PackedWeight, EqualsItsLayout) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8, DType::kI16})
    for (int64_t n : {1, 15, 16, 17, 48, 97})
      for (int64_t k : {1, 2, 3, 15, 16, 17, 97, 300}) check(dtype, n, k);
}

template <class Format>
void check_row_panels(int64_t n, int64_t units, const std::function<int64_t(int64_t)>& source_row = {}) {
  using RowPanel = blocks::RowPanel<Format>;
  constexpr int kGroups = Format::kElements / Format::kGroup;
  SCOPED_TRACE(::testing::Message() << Format::kName << " " << n << " x " << units << " blocks");
  const int64_t k = units * Format::kElements, row_panels = (n + 15) / 16;
  // Every bit is random: scales may be infinite or NaN.
  const std::vector<uint8_t> source = random_bytes(row_bytes(Format::kDType, k) * n, static_cast<uint32_t>(n * 31 + k));
  const int64_t bytes = packed_bytes(Format::kDType, n, k);
  ASSERT_EQ(bytes, row_panels * units * RowPanel::kBytes);
  std::vector<uint8_t> target(static_cast<size_t>(bytes + 64), 0xee);
  const TensorView view{Format::kDType, {n, k}, source.data()};
  pack_row_panels(view, row_panels / 2, row_panels, target.data(), source_row);
  pack_row_panels(view, 0, row_panels / 2, target.data(), source_row);
  for (size_t i = static_cast<size_t>(bytes); i < target.size(); ++i) ASSERT_EQ(target[i], 0xee);
  const Layout layout = packed_layout(Format::kDType, n, k);
  ASSERT_EQ(packed_unit_bytes(Format::kDType), RowPanel::kBytes);
  ASSERT_EQ(layout.size() * RowPanel::kBytes, bytes);

  std::vector<float> values(static_cast<size_t>(n * k));
  unpack_row(Format::kDType, source.data(), values.data(), n * k);
  for (int64_t row_panel = 0; row_panel < row_panels; ++row_panel) {
    for (int64_t u = 0; u < units; ++u) {
      const uint8_t* unit = target.data() + layout.memory(row_panel * units + u) * RowPanel::kBytes;
      uint8_t lines[2][Format::kElements * 16];
      float scales[kGroups * 16], mins[kGroups * 16] = {};
      RowPanel::template unpack<true>(unit, lines[0], scales, mins);
      RowPanel::template unpack<false>(unit, lines[1], scales, mins);
      for (int64_t row = 0; row < 16; ++row) {
        const int64_t at = row_panel * 16 + row;
        for (int64_t i = 0; i < Format::kElements; ++i) {
          const auto place = static_cast<size_t>(i / 4 * 64 + row * 4 + i % 4);
          const auto group = static_cast<size_t>(i / Format::kGroup * 16 + row);
          const auto code = static_cast<int8_t>(lines[0][place]);
          ASSERT_LE(std::abs(int{code}), Format::kMaxCode);
          ASSERT_EQ(int{lines[1][place]} - Format::kOffset, code);
          if (Format::kMaxCode <= 63) {
            ASSERT_LE(lines[1][place], 127);  // what dot4_u7s8 asks for
          }
          const float product = scales[group] * static_cast<float>(code);
          const float got = Format::kHasMins ? product - mins[group] : product;
          if (at >= n) {
            // Padding: whatever its code, nothing that could disturb a sum.
            ASSERT_LT(std::abs(got), 1e-36f);
            continue;
          }
          const int64_t from = source_row ? source_row(at) : at;
          const float expected = values[static_cast<size_t>(from * k + u * Format::kElements + i)];
          if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(got));
          } else {
            ASSERT_EQ(__builtin_bit_cast(uint32_t, got), __builtin_bit_cast(uint32_t, expected))
                << "row " << at << " block " << u << " element " << i << ": " << got << " expected " << expected;
          }
        }
      }
    }
  }
}

TEST(PackedWeight, RowPanelsHoldTheValuesOfEveryBlockFormat) {
#define REDLINE_CHECK_FORMAT(F)             \
  for (int64_t n : {1, 15, 16, 17, 48, 97}) \
    for (int64_t units : {1, 2, 7}) check_row_panels<blocks::F>(n, units);
  REDLINE_BLOCK_FORMATS(REDLINE_CHECK_FORMAT)
#undef REDLINE_CHECK_FORMAT
}

// Memory stays near the file's: 4 % more, but for two rare formats that are packed in whole bits.
TEST(PackedWeight, RowPanelsAreHardlyLargerThanTheFile) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const DTypeInfo& t = dtype_info(static_cast<DType>(i));
    if (!t.is_block || t.row_bytes > 0) continue;
    const double ratio = static_cast<double>(packed_unit_bytes(t.dtype)) / (16 * t.block_bytes);
    const bool is_rare = t.dtype == DType::kIQ3_S || t.dtype == DType::kTQ1_0;
    EXPECT_GE(ratio, 1.0) << t.name;
    EXPECT_LE(ratio, is_rare ? 1.26 : 1.04) << t.name;
  }
}

TEST(PackedWeight, W8A8HoldsCodesByItsLayoutAndScales) {
  const auto reversed = [](int64_t n) { return 36 - n; };
  for (int64_t k : {32, 64, 96}) {
    const int64_t n = 37, row = row_bytes(DType::kW8A8, k);
    std::vector<uint8_t> source(static_cast<size_t>(n * row));
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 31 + 7);
    for (int64_t i = 0; i < n; ++i) {
      const auto scale = static_cast<float>(i + 1);
      std::memcpy(&source[static_cast<size_t>(i * row + k)], &scale, sizeof(scale));
    }
    std::vector<uint8_t> packed(static_cast<size_t>(packed_bytes(DType::kW8A8, n, k)), 0xee);
    ASSERT_EQ(packed.size(), static_cast<size_t>(3 * blocks::W8A8::panel_bytes(k)));
    pack_row_panels({DType::kW8A8, {n, k}, source.data()}, 0, 3, packed.data(), reversed);
    const Layout layout = packed_layout(DType::kW8A8, n, k);
    const int64_t padded = (k + 63) / 64 * 64;
    for (int64_t i = 0; i < 48; ++i) {
      for (int64_t c = 0; c < padded; ++c) {
        const uint8_t code = packed[static_cast<size_t>(layout.memory(i * padded + c))];
        ASSERT_EQ(code, i < n && c < k ? source[static_cast<size_t>(reversed(i) * row + c)] : 0) << i << " " << c;
      }
      float scale;
      std::memcpy(&scale,
                  &packed[static_cast<size_t>(i / 16 * blocks::W8A8::panel_bytes(k) + blocks::W8A8::codes_bytes(k) +
                                              i % 16 * 4)],
                  4);
      ASSERT_EQ(scale, i < n ? static_cast<float>(reversed(i) + 1) : 0.0f);
    }
  }
}

TEST(PackedWeight, RowsFromAnotherOrder) {
  // Interleaved pairs to halves, as a rotary checkpoint needs.
  const auto row = [](int64_t n) { return n / 8 * 8 + (n % 8 < 4 ? n % 8 * 2 : (n % 8 - 4) * 2 + 1); };
  check(DType::kBF16, 40, 33, row);
  check_row_panels<blocks::Q4_0>(40, 2, row);
}

TEST(PackedWeight, OneLineIsSixteenRowsByFourBytes) {
  const Layout bf16 = packed_layout(DType::kBF16, 32, 64);
  EXPECT_EQ(bf16.memory(0), 0);
  EXPECT_EQ(bf16.memory(1), 1);              // k = 1 beside k = 0
  EXPECT_EQ(bf16.memory(2), 32);             // the next line
  EXPECT_EQ(bf16.memory(64), 2);             // row 1
  EXPECT_EQ(bf16.memory(16 * 64), 16 * 64);  // the next row panel
  EXPECT_EQ(packed_bytes(DType::kBF16, 17, 3), 2 * 16 * 4 * 2);
  EXPECT_EQ(packed_bytes(DType::kQ4_K, 17, 512), 2 * 16 * 2 * 148);
}

TEST(PackedWeight, NothingToPack) {
  EXPECT_EQ(packed_bytes(DType::kF32, 0, 5), 0);
  EXPECT_EQ(packed_bytes(DType::kF32, 5, 0), 0);
  pack_row_panels({DType::kF32, {5, 0}, nullptr}, 0, 1, nullptr);
}

}  // namespace
}  // namespace redline
