// gated_add of every instruction set against float64.
#include "kernels/cpu/gated_add.h"

#include "support/guarded_buffer.h"
#include "support/isa_test.h"

namespace redline {
namespace {

using GatedAdd = IsaTest;

TEST_P(GatedAdd, AgreesWithReferenceInPlaceOfEither) {
  for (int64_t cols : {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 127, 1536})
    for (int64_t rows : {0, 1, 3}) {
      const int64_t n = rows * cols;
      testing::GuardedBuffer<float> a(n), b(n), gate(cols), y(n);
      const auto fill = [](testing::GuardedBuffer<float>& to, uint64_t seed) {
        const std::vector<float> v = test_values(static_cast<size_t>(to.size()), seed, 3.0f);
        for (int64_t i = 0; i < to.size(); ++i) to[i] = v[static_cast<size_t>(i)];
      };
      fill(a, 1), fill(b, 2), fill(gate, 3);
      kernels().gated_add({a.data(), b.data(), gate.data(), y.data(), rows, cols});
      for (int64_t i = 0; i < n; ++i) {
        const double product = double{gate[i % cols]} * double{b[i]};
        // Two roundings: of the product and of the sum.
        ASSERT_NEAR(y[i], a[i] + product, kRounding * (2 * std::abs(product) + std::abs(a[i])) * 1.01);
      }
      for (auto* in_place : {&a, &b}) {
        fill(a, 1), fill(b, 2);
        kernels().gated_add({a.data(), b.data(), gate.data(), in_place->data(), rows, cols});
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ((*in_place)[i], y[i]);
      }
    }
}

REDLINE_INSTANTIATE_PER_ISA(GatedAdd);

}  // namespace
}  // namespace redline
