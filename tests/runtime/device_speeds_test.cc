// What is measured of a device, and the record of it: the emulated device proves that every figure is one.
#include "runtime/device_speeds.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/cache_folder.h"
#include "kernels/emu/emulated_device.h"
#include "runtime/device_record.h"

namespace redline::test {
namespace {

std::vector<DeviceSpeeds::Product> products(const std::vector<std::array<double, 3>>& rows) {
  std::vector<DeviceSpeeds::Product> made;
  for (const auto& [count, own, library] : rows) made.push_back({static_cast<int64_t>(count), 64, own, library});
  return made;
}

TEST(DeviceSpeeds, TheLibraryTakesWhatItIsFasterAt) {
  EXPECT_EQ(choose_own_rows(products({{32, 1, 2}, {64, 1, 2}, {128, 3, 2}, {256, 6, 2}})), 64);
  EXPECT_EQ(choose_own_rows(products({{32, 1, 2}, {64, 3, 2}, {128, 2, 2}, {256, 6, 2}})), 128);  // as fast is enough
  EXPECT_EQ(choose_own_rows(products({{32, 3, 2}, {64, 3, 2}})), 0);
  EXPECT_EQ(choose_own_rows(products({{32, 1, 2}, {64, 1, 2}})), 64);
}

TEST(DeviceSpeeds, AreMeasuredOfADevice) {
  WorkerTeam team(2);
  for (const bool has_library : {false, true}) {
    const auto device = std::make_shared<OpenDevice>(
        emu::open_emulated_device({.multiprocessors = 3, .team = &team, .has_library = has_library}));
    const int64_t kept = device->own_rows();
    const auto speeds = measure_device_speeds(device, team);
    ASSERT_TRUE(speeds.ok()) << speeds.status().to_string();
    EXPECT_EQ(device->own_rows(), kept);  // what was tried is undone
    for (const double figure : {speeds->read_bytes_per_s, speeds->copy_bytes_per_s, speeds->upload_bytes_per_s,
                                speeds->download_bytes_per_s, speeds->launch_seconds, speeds->step_seconds}) {
      EXPECT_GT(figure, 0);
      EXPECT_TRUE(std::isfinite(figure));
    }
    ASSERT_GE(speeds->products.size(), 2u);
    for (const DeviceSpeeds::Product& product : speeds->products) {
      EXPECT_GT(product.own_seconds, 0);
      EXPECT_EQ(product.library_seconds.has_value(), has_library);
    }
    EXPECT_EQ(speeds->own_rows.has_value(), has_library);
  }
  const auto device = std::make_shared<OpenDevice>(emu::open_emulated_device({.multiprocessors = 3, .team = &team}));
  EXPECT_EQ(measure_device_speeds(device, team, [] { return false; }).status().code(), Code::cancelled);
}

TEST(DeviceRecord, IsOfOneGpuAndOneLibrary) {
  const std::string folder = ::testing::TempDir() + "/device_record";
  std::filesystem::remove_all(folder);
  EXPECT_FALSE(read_device_record(folder, "NVIDIA H200", "cuBLASLt 13.0.2").has_value());
  for (const DeviceRecord& record :
       {DeviceRecord{"NVIDIA H200", "cuBLASLt 13.0.2", 192}, DeviceRecord{"NVIDIA A100", "cuBLASLt 13.0.2", 64},
        DeviceRecord{"NVIDIA H200", "cuBLASLt 13.0.2", 128}}) {
    const auto path = write_device_record(folder, record);
    ASSERT_TRUE(path.ok()) << path.status().to_string();
    EXPECT_TRUE(std::filesystem::exists(*path));
  }
  EXPECT_EQ(read_device_record(folder, "NVIDIA H200", "cuBLASLt 13.0.2").value().own_rows, 128);
  EXPECT_EQ(read_device_record(folder, "NVIDIA A100", "cuBLASLt 13.0.2").value().own_rows, 64);
  EXPECT_FALSE(read_device_record(folder, "NVIDIA H200", "cuBLASLt 13.1.0").has_value());
  EXPECT_FALSE(read_device_record("", "NVIDIA H200", "cuBLASLt 13.0.2").has_value());
  EXPECT_EQ(write_device_record("", {}).status().code(), Code::unsupported);
  // A damaged file is no record, and is replaced.
  for (const char* text :
       {"{", "[{\"model\": \"NVIDIA H200\", \"library\": \"cuBLASLt 13.0.2\", \"own_rows\": -3}]",
        "[{\"model\": \"NVIDIA H200\", \"library\": \"cuBLASLt 13.0.2\", \"own_rows\": \"many\"}]"}) {
    std::ofstream(cache_path(folder, "devices")) << text;
    EXPECT_FALSE(read_device_record(folder, "NVIDIA H200", "cuBLASLt 13.0.2").has_value()) << text;
    ASSERT_TRUE(write_device_record(folder, {"NVIDIA H200", "cuBLASLt 13.0.2", 7}).ok());
    EXPECT_EQ(read_device_record(folder, "NVIDIA H200", "cuBLASLt 13.0.2").value().own_rows, 7);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace redline::test
