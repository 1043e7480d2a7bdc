// Running a test once for every instruction set of the build.
//
//   using RmsNorm = IsaTest;
//   TEST_P(RmsNorm, AgreesWithReference) { kernels().rms_norm(...); }
//   REDLINE_INSTANTIATE_PER_ISA(RmsNorm);
//
// A set that this machine lacks skips with a line that says so. The table is generic overlaid up to the set.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace redline {

class IsaTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    int count = 0;
    const CpuIsa& isa = cpu_isas(&count)[GetParam()];
    if (!isa.supported()) GTEST_SKIP() << "this CPU or its operating system lacks " << isa.name;
    Result<CpuKernels> table = cpu_kernels_for(isa.name);
    ASSERT_TRUE(table.ok()) << table.status().to_string();
    kernels_ = *table;
    if (kernels_.worker_begin != nullptr) kernels_.worker_begin();
    begun_ = true;
  }
  void TearDown() override {
    if (begun_ && kernels_.worker_end != nullptr) kernels_.worker_end();
  }
  const CpuKernels& kernels() const { return kernels_; }

 private:
  CpuKernels kernels_;
  bool begun_ = false;
};

inline int num_cpu_isas() {
  int count = 0;
  cpu_isas(&count);
  return count;
}
/// The index of the base set that a set is, or whose overlay it is.
inline int base_isa(int index) {
  int count = 0;
  for (const CpuIsa* isas = cpu_isas(&count); index > 0; --index)
    for (const char* base : {"avx2", "avx512"})
      if (base == std::string(isas[index].name)) return index;
  return 0;
}
inline std::vector<int> base_isas() {
  std::vector<int> found;
  for (int i = 0; i < num_cpu_isas(); ++i)
    if (base_isa(i) == i) found.push_back(i);
  return found;
}
inline std::string isa_test_name(const ::testing::TestParamInfo<int>& info) {
  int count = 0;
  return cpu_isas(&count)[info.param].name;
}
#define REDLINE_INSTANTIATE_PER_ISA(suite) \
  INSTANTIATE_TEST_SUITE_P(PerIsa, suite, ::testing::Range(0, num_cpu_isas()), isa_test_name)

/// Half a unit of the last place of 1: the largest relative error of one float32 rounding.
inline constexpr double kRounding = 1.0 / (1 << 24);

/// Evenly spread values in (-scale, scale), the same on every machine (splitmix64; Steele, Lea and Flood 2014).
inline std::vector<float> test_values(size_t count, uint64_t seed, float scale = 1.0f) {
  std::vector<float> values(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (float& v : values) {
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    v = (static_cast<float>((z ^ (z >> 31)) >> 40) / 8388608.0f - 1.0f) * scale;
  }
  return values;
}

}  // namespace redline
