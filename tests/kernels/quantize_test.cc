// Quantizers of every instruction set: the blocks of ggml's quantizer to the bit (tests/golden/quantized.npz of
// make_quantized.py), the same on all sets, for any number of blocks.
#include "kernels/cpu/quantize.h"

#include <cmath>
#include <limits>

#include "support/isa_test.h"
#include "support/npz.h"
#include "tensor/blocks/all.h"

namespace redline {
namespace {

constexpr DType kFormats[] = {
#define REDLINE_TYPE(F) DType::k##F,
    REDLINE_BLOCK_FORMATS(REDLINE_TYPE)
#undef REDLINE_TYPE
};

class Quantize : public IsaTest {
 protected:
  std::vector<uint8_t> run(DType to, const void* x, DType source, const float* weights, int64_t rows, int64_t cols,
                           bool expected = true) const {
    int count = 0;
    const CpuKernels kernels = cpu_kernels_for(cpu_isas(&count)[GetParam()].name).value();
    std::vector<uint8_t> out(static_cast<size_t>(rows * row_bytes(to, cols)) + 1, 0xA5);
    EXPECT_EQ(kernels.quantize[static_cast<size_t>(to)]({source, x, weights, out.data(), rows, cols}), expected);
    EXPECT_EQ(out.back(), 0xA5) << "written past the end";
    out.pop_back();
    return out;
  }
};

TEST_P(Quantize, HasTheBitsOfGgml) {
  auto arrays = testing::read_npz(REDLINE_SOURCE_DIR "/tests/golden/quantized.npz");
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  const auto floats = [&](const char* name) {
    const auto& values = arrays->at(name).values;
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> rows = floats("rows"), weights = floats("weights");
  const auto cols = static_cast<int64_t>(weights.size());
  for (const DType type : kFormats)
    for (const bool weighted : {false, true}) {
      const std::string name = std::string(dtype_info(type).name) + (weighted ? ".weighted" : "");
      SCOPED_TRACE(name);
      const auto& want = arrays->at(name).values;
      std::vector<float> x = rows;  // ggml misplaces what follows the zeros of row 2 (make_quantized.py)
      if (type == DType::kIQ3_S) x.erase(x.begin() + 2 * cols, x.begin() + 3 * cols);
      const std::vector<uint8_t> got = run(type, x.data(), DType::kF32, weighted ? weights.data() : nullptr,
                                           static_cast<int64_t>(x.size()) / cols, cols);
      const size_t row_size = got.size() / want.size();
      for (size_t r = 0; r < want.size(); ++r) {
        const auto sum = static_cast<uint32_t>(crc32(0, got.data() + r * row_size, static_cast<uInt>(row_size)));
        EXPECT_EQ(sum, static_cast<uint32_t>(static_cast<int32_t>(want[r]))) << "row " << r;
      }
    }
}

TEST_P(Quantize, RowsAndSourcesDoNotMatter) {
  constexpr int64_t kCols = 768, kRows = 23;
  std::vector<float> x = test_values(kRows * kCols, 5, 0.3f);
  const std::vector<float> weights = test_values(kCols, 6, 1.0f);
  std::vector<float> positive(weights);
  for (float& w : positive) w = w * w;
  std::vector<uint16_t> halves(x.size()), brains(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    brains[i] = f32_to_bf16(x[i]);
    x[i] = bf16_to_f32(brains[i]);  // values that all three types have
    halves[i] = f32_to_f16(x[i]);
  }
  for (const DType type : kFormats) {
    SCOPED_TRACE(dtype_info(type).name);
    const std::vector<uint8_t> whole = run(type, x.data(), DType::kF32, positive.data(), kRows, kCols);
    EXPECT_EQ(run(type, halves.data(), DType::kF16, positive.data(), kRows, kCols), whole);
    EXPECT_EQ(run(type, brains.data(), DType::kBF16, positive.data(), kRows, kCols), whole);
    std::vector<uint8_t> each;
    for (int64_t row = 0; row < kRows; ++row) {
      const auto one = run(type, x.data() + row * kCols, DType::kF32, positive.data(), 1, kCols);
      each.insert(each.end(), one.begin(), one.end());
    }
    EXPECT_EQ(each, whole);
  }
}

// The error of each format relative to the values, for values spread evenly: a bound that a wrong scale, code or order
// of elements would exceed. With b bits a step is 2 / 2^b of the range, and its error at most half of it; the ternary
// ones and MXFP4's largest steps are a half and a sixth of the range.
TEST_P(Quantize, ErrorsAreThoseOfTheBits) {
  constexpr int64_t kCols = 512, kRows = 5;
  const std::vector<float> x = test_values(kRows * kCols, 9);
  const auto bound = [](DType type) {
    switch (type) {
      case DType::kTQ1_0:
      case DType::kTQ2_0: return 0.51;
      case DType::kQ2_K: return 0.40;
      case DType::kQ3_K: return 0.30;
      case DType::kIQ3_S:
      case DType::kMXFP4: return 0.35;
      case DType::kIQ4_NL:
      case DType::kIQ4_XS: return 0.15;
      case DType::kQ5_0:
      case DType::kQ5_1:
      case DType::kQ5_K: return 0.07;
      case DType::kQ6_K: return 0.04;
      case DType::kQ8_0: return 0.005;
      default: return 0.13;
    }
  };
  for (const DType type : kFormats) {
    SCOPED_TRACE(dtype_info(type).name);
    const std::vector<uint8_t> blocks = run(type, x.data(), DType::kF32, nullptr, kRows, kCols);
    std::vector<float> back(x.size());
    for (int64_t row = 0; row < kRows; ++row)
      unpack_row(type, blocks.data() + row * row_bytes(type, kCols), back.data() + row * kCols, kCols);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::abs(double{x[i]} - double{back[i]}));
    EXPECT_LT(worst, bound(type));
    EXPECT_GT(worst, 0);
  }
}

TEST_P(Quantize, WhatIsNotFiniteIsFound) {
  constexpr int64_t kCols = 256, kRows = 19;
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (const size_t at : {size_t{0}, size_t{255}, size_t{18 * 256 + 77}}) {
      std::vector<float> x = test_values(kRows * kCols, 3);
      x[at] = bad;
      for (const DType type : kFormats) run(type, x.data(), DType::kF32, nullptr, kRows, kCols, false);
    }
}

REDLINE_INSTANTIATE_PER_ISA(Quantize);

}  // namespace
}  // namespace redline
