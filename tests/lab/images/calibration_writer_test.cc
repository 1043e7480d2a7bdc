#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "diffusion/calibration_file.h"
#include "lab/images/calibrate.h"
#include "support/temporary_folder.h"

namespace redline::lab {
namespace {

TEST(CalibrationWriter, KeepsMasksAndReplacesThoseOfOneBudget) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/step_cache.json";
  EXPECT_EQ(read_calibration(path).status().code(), Code::not_found);
  ASSERT_TRUE(find_calibration(folder.path(), "", "").ok());
  EXPECT_TRUE(find_calibration(folder.path(), "", "")->empty()) << "no file: nothing calibrated";
  EXPECT_TRUE(check_calibration(path).ok());
  CalibrateReport report;
  report.request.num_inference_steps = 20;
  report.budgets = {{{0, 1, 5}, 1, 2, 3, 4}, {{0, 1, 2, 9}, 1, 2, 3, 4}};
  ASSERT_TRUE(write_calibration(path, report).ok());
  report.budgets = {{{0, 3, 6}, 1, 2, 3, 4}};
  ASSERT_TRUE(write_calibration(path, report).ok());
  report.request.num_inference_steps = 28;
  ASSERT_TRUE(write_calibration(path, report).ok());
  const Result<std::vector<CalibratedMask>> masks = read_calibration(path);
  ASSERT_TRUE(masks.ok()) << masks.status().to_string();
  ASSERT_EQ(masks->size(), 3U);
  EXPECT_EQ((*masks)[0].computed, (std::vector<int64_t>{0, 1, 2, 9}));
  EXPECT_EQ((*masks)[1].computed, (std::vector<int64_t>{0, 3, 6}));
  EXPECT_EQ((*masks)[2].steps, 28);
  EXPECT_FALSE(check_calibration("/proc/none/x.json").ok()) << "no folder can be made there";
  EXPECT_FALSE(write_calibration("/proc/none/x.json", report).ok());
  EXPECT_TRUE(check_calibration(folder.path() + "/made/x.json").ok());
  EXPECT_TRUE(std::filesystem::is_directory(folder.path() + "/made"));
}

TEST(CalibrationWriter, ADamagedFileIsNotOverwritten) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/step_cache.json";
  std::ofstream(path) << "{";
  EXPECT_FALSE(write_calibration(path, CalibrateReport()).ok());
}

}  // namespace
}  // namespace redline::lab
