// Rows of every packed weight type equal unpack_row, bit for bit, on every instruction set.
#include <gtest/gtest.h>

#include <iostream>

#include "kernels/cpu/cpu_kernels.h"
#include "support/random_weight.h"

namespace redline {
namespace {

using testing::GuardedBuffer;
using testing::RandomWeight;
using testing::weight_types;

TEST(Embedding, RowsEqualUnpackRow) {
  int count = 0;
  const CpuIsa* isas = cpu_isas(&count);
  for (int i = 0; i < count; ++i) {
    if (!isas[i].supported()) {
      std::cout << "skipped: this CPU has no " << isas[i].name << "\n";
      continue;
    }
    SCOPED_TRACE(isas[i].name);
    Result<CpuKernels> table = cpu_kernels_for(isas[i].name);
    ASSERT_TRUE(table.ok()) << table.status().to_string();
    for (DType type : weight_types()) {
      SCOPED_TRACE(dtype_info(type).name);
      const int64_t block = dtype_info(type).block_elements;
      for (int64_t vocab : {1, 16, 37}) {
        for (int64_t k : {block, 3 * block, block == 1 ? 50 : 5 * block}) {
          const RandomWeight w(type, vocab, k, static_cast<uint32_t>(vocab + k));
          const int32_t tokens[] = {0,
                                    static_cast<int32_t>(vocab) - 1,
                                    static_cast<int32_t>(vocab),
                                    -1,
                                    INT32_MIN,
                                    static_cast<int32_t>(vocab) / 2,
                                    0};
          const int64_t rows = std::size(tokens);
          GuardedBuffer<float> y(rows * k);
          table->embedding[static_cast<int>(type)]({tokens, rows, w.packed.data(), vocab, k, y.data()});
          const std::vector<float> zeros(static_cast<size_t>(k), 0.0f);
          for (int64_t m = 0; m < rows; ++m) {
            const bool known = tokens[m] >= 0 && tokens[m] < vocab;
            const float* expected = known ? w.values.data() + tokens[m] * k : zeros.data();
            ASSERT_EQ(std::memcmp(y.data() + m * k, expected, static_cast<size_t>(k) * 4), 0) << "token " << tokens[m];
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace redline
