#include "cli/memory_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace redline::cli {
namespace {

using ::testing::EndsWith;

constexpr int64_t kGb = 1'000'000'000;

TEST(MemoryAdvice, WeightsThatFitNeedNoWarning) { EXPECT_EQ(memory_warning("m", 2 * kGb, kGb, 2 * kGb), ""); }

TEST(MemoryAdvice, WeightsThatDoNotFit) {
  EXPECT_EQ(
      memory_warning("m", 16 * kGb, 8 * kGb, 6 * kGb),
      "m: its weights take 16.0 GB, and 6.00 GB of memory are available: the system may end this program; at 4 bits "
      "(q4_0) they would take 4.50 GB");
  EXPECT_THAT(memory_warning("m", 16 * kGb, 8 * kGb, kGb), EndsWith("; a smaller model fits"));
}

TEST(MemoryAdvice, ImagesThatDoNotFit) {
  ImageOptions options;
  options.max_side = 16384;
  options.max_batch = 4;
  EXPECT_EQ(image_memory_warning(64 * kGb, options, 1, 1024, 1024, kGb), "");
  EXPECT_EQ(image_memory_warning(64 * kGb, options, 1, 8192, 8192, 2 * kGb),  // a quarter of the area, half the rows
            "8192x8192 pixels take up to 8.00 GB, and 2.00 GB of memory are available: the system may end this "
            "program; --size 4096x4096 fits");
  EXPECT_THAT(image_memory_warning(64 * kGb, options, 1, 8192, 8192, 1000),
              EndsWith("the system may end this program"));
}

TEST(MemoryAdvice, MemoryIsAvailable) { EXPECT_GT(available_memory(), 1 << 20); }

TEST(MemoryAdvice, OtherFailuresStay) {
  EXPECT_EQ(advise_text_memory(Status(Code::io, "x"), "m", 0).message(), "x");
  EXPECT_EQ(advise_image_memory(Status(Code::io, "x"), "m", {}, 0, 0).message(), "x");
  // The memory of the machine has nothing to do with that of a GPU.
  const Status full(Code::out_of_device_memory, "cuda/sm90: the device is full");
  EXPECT_EQ(advise_text_memory(full, "m", 0).message(), full.message());
  EXPECT_EQ(
      advise_image_memory(full, "m", {}, 64, 64).message(),
      full.message() + fmt::format("; --dtype q8 takes less; so does --max-side below {}", ImageOptions{}.max_side));
  const ImageOptions q8 = {.dtype = Precision::kQ8};
  EXPECT_EQ(advise_image_memory(full, "m", q8, 64, 64).message(),
            full.message() + fmt::format("; --max-side below {} takes less", q8.max_side));
}

}  // namespace
}  // namespace redline::cli
