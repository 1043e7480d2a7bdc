#include "tensor/dim.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace redline {
namespace {

/// Uniform in [low, high), not RapidCheck's range that starts small.
int pick_dim(int low, int high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high)); }

/// A random polynomial built by sums and products of small parts.
Dim any_dim(int depth = 3) {
  const int kind = pick_dim(0, depth > 0 ? 4 : 2);
  if (kind == 0) return Dim(pick_dim(-4, 5));
  if (kind == 1) return Dim(static_cast<Symbol>(pick_dim(0, kNumSymbols)));
  const Dim a = any_dim(depth - 1), b = any_dim(depth - 1);
  return kind == 2 ? a + b : a * b;
}
SymbolValues any_values() {
  SymbolValues values;
  for (int64_t& value : values.value) value = pick_dim(0, 9);
  return values;
}

RC_GTEST_PROP(Dim, ArithmeticIsThatOfTheValues, ()) {
  const Dim a = any_dim(), b = any_dim();
  const SymbolValues values = any_values();
  RC_ASSERT((a + b).eval(values) == a.eval(values) + b.eval(values));
  RC_ASSERT((a * b).eval(values) == a.eval(values) * b.eval(values));
}

RC_GTEST_PROP(Dim, EqualSizesCompareEqual, ()) {
  const Dim a = any_dim(), b = any_dim(), c = any_dim();
  RC_ASSERT(a + b == b + a);
  RC_ASSERT(a * b == b * a);
  RC_ASSERT((a + b) + c == a + (b + c));
  RC_ASSERT((a + b) * c == a * c + b * c);
  RC_ASSERT(a + a * -1 == Dim(0));
  RC_ASSERT(a * 0 == Dim(0));
  RC_ASSERT(a * 1 == a);
}

TEST(Dim, Constants) {
  EXPECT_TRUE(Dim(7).is_constant());
  EXPECT_EQ(Dim(7).constant(), 7);
  EXPECT_TRUE(Dim().is_constant());
  EXPECT_EQ(Dim().constant(), 0);
  EXPECT_FALSE(Dim(Symbol::kTokens).is_constant());
  EXPECT_TRUE((Dim(Symbol::kTokens) + Dim(Symbol::kTokens) * -1 + 3).is_constant());
}

TEST(Dim, Prints) {
  const Dim tokens(Symbol::kTokens), sequences(Symbol::kSequences);
  EXPECT_EQ((tokens * 512 + 3).to_string(), "tokens*512 + 3");
  EXPECT_EQ(Dim(0).to_string(), "0");
  EXPECT_EQ((tokens * tokens + sequences).to_string(), "tokens*tokens + sequences");
  EXPECT_EQ(to_string(Shape{tokens, 512}), "[tokens, 512]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

TEST(Dim, NumElements) {
  EXPECT_EQ(num_elements({}), Dim(1));
  EXPECT_EQ(num_elements({Dim(Symbol::kTokens), 4, 2}), Dim(Symbol::kTokens) * 8);
}

}  // namespace
}  // namespace redline
