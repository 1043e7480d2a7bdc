#include "models/onnx/symbolic_size.h"

#include <gtest/gtest.h>

#include <cmath>

namespace redline {
namespace {

TEST(SymbolicSize, IsAPolynomial) {
  SymbolicSizes s;
  const SymbolicSize batch = s.named("batch"), width = s.named("width");
  EXPECT_EQ(batch, s.named("batch"));
  EXPECT_EQ(s.text(s.add(s.multiply(batch, 512), 3)), "batch*512 + 3");
  EXPECT_EQ(s.add(batch, width), s.add(width, batch));
  EXPECT_EQ(s.multiply(s.add(batch, 1), s.subtract(batch, 1)), s.subtract(s.multiply(batch, batch), 1));
  EXPECT_EQ(s.text(s.subtract(3, s.multiply(batch, 2))), "-batch*2 + 3");
  EXPECT_EQ(s.subtract(batch, batch), SymbolicSize(0));
  EXPECT_EQ(s.multiply(batch, 0), SymbolicSize(0));
  EXPECT_EQ(s.text(SymbolicShape{batch, 3, s.add(width, -1)}), "[batch, 3, width - 1]");
  EXPECT_EQ(s.product({batch, 2, width, 3}), s.multiply(s.multiply(width, batch), 6));
  EXPECT_TRUE(s.add(batch, 1).is_nonnegative());
  EXPECT_FALSE(s.subtract(batch, width).is_nonnegative());
}

TEST(SymbolicSize, RoundedQuotients) {
  SymbolicSizes s;
  const SymbolicSize h = s.named("h");
  for (int64_t n = -9; n <= 9; ++n)
    for (int64_t d = 1; d <= 4; ++d) {
      const auto exact = static_cast<double>(n) / static_cast<double>(d);
      EXPECT_EQ(s.floor_divide(n, d), SymbolicSize(static_cast<int64_t>(std::floor(exact)))) << n << "/" << d;
      EXPECT_EQ(s.ceil_divide(n, d), SymbolicSize(static_cast<int64_t>(std::ceil(exact)))) << n << "/" << d;
    }
  EXPECT_EQ(s.floor_divide(s.multiply(h, 4), 2), s.multiply(h, 2));
  EXPECT_EQ(s.floor_divide(s.add(s.multiply(h, 2), 1), 2), h);  // (2h + 1)/2 = h + 1/2
  EXPECT_EQ(s.text(s.floor_divide(h, 2)), "floor(h/2)");
  EXPECT_EQ(s.text(s.ceil_divide(h, 2)), "floor((h + 1)/2)");
  EXPECT_EQ(s.floor_divide(s.add(s.multiply(h, 3), 5), 2), s.add(s.add(h, 2), s.floor_divide(s.add(h, 1), 2)));
  EXPECT_EQ(s.floor_divide(h, 2), s.floor_divide(h, 2));
}

TEST(SymbolicSize, SmallerAndLarger) {
  SymbolicSizes s;
  const SymbolicSize a = s.named("a");
  EXPECT_EQ(s.smaller(2, 3), SymbolicSize(2));
  EXPECT_EQ(s.larger(2, 3), SymbolicSize(3));
  EXPECT_EQ(s.smaller(a, s.add(a, 1)), a);  // sizes are not negative
  EXPECT_EQ(s.larger(a, 0), a);
  EXPECT_EQ(s.text(s.smaller(a, 512)), "min(a, 512)");
  EXPECT_EQ(s.text(s.larger(s.subtract(a, 1), 0)), "max(a - 1, 0)");
}

TEST(SymbolicSize, ExactQuotients) {
  SymbolicSizes s;
  const SymbolicSize a = s.named("a"), b = s.named("b");
  EXPECT_EQ(s.divide_exactly(s.multiply(s.multiply(a, b), 12), s.multiply(a, 4)), s.multiply(b, 3));
  EXPECT_EQ(s.divide_exactly(s.multiply(a, s.add(b, 2)), a), s.add(b, 2));
  EXPECT_EQ(s.divide_exactly(s.add(a, b), s.add(a, b)), SymbolicSize(1));
  EXPECT_EQ(s.divide_exactly(0, a), SymbolicSize(0));
  EXPECT_EQ(s.divide_exactly(a, b), std::nullopt);
  EXPECT_EQ(s.divide_exactly(s.multiply(a, 3), 2), std::nullopt);
  EXPECT_EQ(s.divide_exactly(s.add(a, 1), a), std::nullopt);
  EXPECT_EQ(s.divide_exactly(a, 0), std::nullopt);
  EXPECT_EQ(s.divide_exactly(0, 0), std::nullopt);
}

TEST(SymbolicSize, OverflowAndGrowthEndInAnUnknownSize) {
  SymbolicSizes s;
  const SymbolicSize a = s.named("a");
  EXPECT_TRUE(s.is_unknown(s.multiply(INT64_MAX, 2)));
  EXPECT_TRUE(s.is_unknown(s.add(INT64_MAX, 1)));
  EXPECT_TRUE(s.is_unknown(s.multiply(s.multiply(a, INT64_MAX), 2)));
  SymbolicSize power = 1, sum = 0;
  for (size_t i = 0; i < SymbolicSizes::kMaxSymbols; ++i) power = s.multiply(power, a);
  EXPECT_FALSE(s.is_unknown(power));
  EXPECT_TRUE(s.is_unknown(s.multiply(power, a)));
  for (size_t i = 0; i < SymbolicSizes::kMaxTerms; ++i) sum = s.add(sum, s.named("n" + std::to_string(i)));
  EXPECT_FALSE(s.is_unknown(sum));
  EXPECT_TRUE(s.is_unknown(s.add(sum, a)));
  SymbolicSize nested = a;
  for (int i = 0; i < 1000; ++i) nested = s.floor_divide(s.add(s.multiply(nested, nested), 1), 3);
  EXPECT_LT(s.text(nested).size(), 3000u);
  EXPECT_NE(s.unknown(), s.unknown());
  const SymbolicSize taken = s.named("?5");
  for (int i = 0; i < 10; ++i) EXPECT_NE(s.unknown(), taken);
}

}  // namespace
}  // namespace redline
