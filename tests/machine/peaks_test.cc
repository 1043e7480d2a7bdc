#include "machine/peaks.h"

#include <cmath>

#include "support/isa_test.h"

namespace redline {
namespace {

using PeaksPerIsa = IsaTest;

void expect_sound(const MachinePeaks& c) {
  for (const Peak& row : c.rows) {
    EXPECT_TRUE(std::isfinite(row.per_thread) && row.per_thread > 0) << row.name;
    EXPECT_TRUE(std::isfinite(row.all) && row.all > 0) << row.name;
    EXPECT_GE(row.spread, 0) << row.name;
    EXPECT_LT(row.spread, 1) << row.name;
    const bool is_memory = row.instruction.empty();
    EXPECT_EQ(is_memory, row.name == "read" || row.name == "copy" || row.name == "l2 read") << row.name;
    EXPECT_EQ(row.unit, is_memory ? "GB/s" : "GOP/s");
    // No machine of today is near these; a loop that the compiler dropped is beyond them.
    EXPECT_LT(row.per_thread, is_memory ? 5e3 : 1e6) << row.name;
    fmt::print("  {:>8} {:18} {:10.1f} {} per thread, {:10.1f} on {} threads, spread {:.0f} %\n", row.name,
               row.instruction, row.per_thread, row.unit, row.all, c.threads, 100 * row.spread);
  }
}

TEST_P(PeaksPerIsa, EveryRowIsPositiveAndNamed) {
  const Result<MachinePeaks> c = measure_peaks(kernels(), {.quick = true, .all_sets = true});
  ASSERT_TRUE(c.ok()) << c.status().to_string();
  int count = 0;
  EXPECT_EQ(c->isa, cpu_isas(&count)[GetParam()].name);
  ASSERT_NE(c->find("read"), nullptr);
  ASSERT_NE(c->find("f32"), nullptr);
  EXPECT_EQ(c->find("bf16") != nullptr, kernels().peak_bf16 != nullptr);
  EXPECT_EQ(c->find("int8") != nullptr, kernels().peak_i8 != nullptr);
  EXPECT_EQ(c->find("f16") != nullptr, kernels().peak_f16 != nullptr);
  EXPECT_EQ(c->find("fp4"), nullptr);
  // One row for each product of each set up to this one, none from above it; find() gives the best.
  int all_count = 0;
  const CpuIsa* all = cpu_isas(&all_count);
  for (int i = 0; i < all_count; ++i) {
    CpuKernels own;
    const bool has = i <= GetParam() && all[i].supported();
    if (has) all[i].fill(own);
    EXPECT_EQ(c->find("f32", all[i].name) != nullptr, has && own.peak_f32 != nullptr) << all[i].name;
    EXPECT_EQ(c->find("int8", all[i].name) != nullptr, has && own.peak_i8 != nullptr) << all[i].name;
  }
  for (const Peak& row : c->rows) EXPECT_GE(c->find(row.name)->all, row.all) << row.name;
  EXPECT_EQ(c->ping_pong_ns > 0, c->threads > 1);
  EXPECT_EQ(c->wake_up_us > 0, c->threads > 1);
  EXPECT_GE(c->ping_pong_worst_ns, c->ping_pong_ns);
  EXPECT_GE(c->threads, 1);
  expect_sound(*c);
}

TEST(MachinePeaks, ReadingLessThanTheBufferIsMeasuredToo) {
  const auto kernels = cpu_kernels_for("");
  ASSERT_TRUE(kernels.ok());
  for (int64_t bytes : {int64_t{1}, int64_t{5} << 20, int64_t{1} << 40}) {
    const auto peaks = measure_peaks(*kernels, {.quick = true, .threads = 1, .read_bytes = bytes});
    ASSERT_TRUE(peaks.ok()) << peaks.status().message();
    EXPECT_GT(peaks->find("read")->all, 0);
    // Without all_sets one row for each product of the table.
    int f32_rows = 0;
    for (const Peak& row : peaks->rows) f32_rows += row.name == "f32";
    EXPECT_EQ(f32_rows, 1);
  }
}

TEST(MachinePeaks, ThreadsAreCappedByTheAllowedCpus) {
  const Result<CpuKernels> kernels = cpu_kernels_for("generic");
  const Result<MachinePeaks> one = measure_peaks(*kernels, {.quick = true, .threads = 1});
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->threads, 1);
  EXPECT_EQ(one->ping_pong_ns, 0);
  const Result<MachinePeaks> many = measure_peaks(*kernels, {.quick = true, .threads = 100000});
  ASSERT_TRUE(many.ok());
  EXPECT_LT(many->threads, 100000);
  const Result<MachinePeaks> negative = measure_peaks(*kernels, {.quick = true, .threads = -1});
  EXPECT_EQ(negative.status().code(), Code::invalid_argument);
}

TEST(MachinePeaks, AFullMeasurementOfTheBestTable) {
  const Result<CpuKernels> kernels = cpu_kernels_for("");
  const Result<MachinePeaks> c = measure_peaks(*kernels, {});
  ASSERT_TRUE(c.ok()) << c.status().to_string();
  expect_sound(*c);
  fmt::print("  {}: {:.2f} s\n", c->isa, c->seconds);
}

REDLINE_INSTANTIATE_PER_ISA(PeaksPerIsa);

}  // namespace
}  // namespace redline
