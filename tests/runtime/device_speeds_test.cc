// Tests of the speeds that are measured of a device, and of their record. The emulated device shows that every figure
// is positive and finite.
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
  EXPECT_EQ(choose_own_rows(products({{32, 1, 2}, {64, 1, 2}, {128, 2, 2}, {256, 6, 2}})), 128);  // as fast is enough
  // One time that is off does not decide: of many rows a fast one, of few a slow one.
  EXPECT_EQ(choose_own_rows(products({{32, 1, 2}, {64, 3, 2}, {128, 4, 2}, {256, 1.9, 2}, {512, 9, 2}})), 32);
  EXPECT_EQ(choose_own_rows(products({{32, 1, 2}, {64, 2.1, 2}, {128, 1, 2}, {256, 6, 2}})), 128);
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
    ASSERT_EQ(speeds->peaks.size(), 3u);
    for (const DeviceSpeeds::Peak& peak : speeds->peaks) {
      const bool is_measured = has_library || peak.type != "e4m3";
      EXPECT_EQ(peak.operations_per_s > 0, is_measured) << peak.type;
      EXPECT_EQ(peak.by, has_library ? speeds->library : is_measured ? "own kernels" : "");
      EXPECT_EQ(peak.reason.empty(), is_measured) << peak.reason;
    }
  }
  const auto device = std::make_shared<OpenDevice>(emu::open_emulated_device({.multiprocessors = 3, .team = &team}));
  EXPECT_EQ(measure_device_speeds(device, team, [] { return false; }).status().code(), Code::cancelled);
}

// A library without one of the types, as on GPUs that lack it, and one that fails: the others are measured.
TEST(DeviceSpeeds, TypesThatTheDeviceLacksAreNamed) {
  WorkerTeam team(2);
  const auto device = std::make_shared<OpenDevice>(
      emu::open_emulated_device({.multiprocessors = 3, .team = &team, .has_library = true}));
  using Type = tiles::ProductType;
  device->table().can_multiply = [](void*, int32_t, int32_t, int32_t, Type type) {
    return type == Type::kE4M3 ? 0 : 1;
  };
  static decltype(tiles::TileDevice::multiply) multiply;
  multiply = device->table().multiply;
  device->table().multiply = [](void* self, const tiles::MatrixProduct* product) {
    return product->type == Type::kI8 ? 1 : multiply(self, product);
  };
  const auto speeds = measure_device_speeds(device, team);
  ASSERT_TRUE(speeds.ok()) << speeds.status().to_string();
  ASSERT_EQ(speeds->peaks.size(), 3u);
  EXPECT_GT(speeds->peaks[0].operations_per_s, 0);
  EXPECT_EQ(speeds->peaks[1].reason, speeds->library + " has no such product on " + speeds->model);
  EXPECT_TRUE(speeds->peaks[2].reason.starts_with(speeds->library + " fails")) << speeds->peaks[2].reason;
}

// The library of the emulated device multiplies numbers of every type.
TEST(DeviceSpeeds, TheEmulatedLibraryKnowsEveryType) {
  WorkerTeam team(1);
  const auto device = std::make_shared<OpenDevice>(
      emu::open_emulated_device({.multiprocessors = 1, .team = &team, .has_library = true}));
  const auto multiply = [&](const auto& x, const auto& w, auto sum, tiles::ProductType type) {
    const tiles::MatrixProduct product = {x.data(), w.data(), &sum, 1, 1, static_cast<int32_t>(x.size()), type};
    EXPECT_TRUE(device->multiply(product).ok());
    return sum;
  };
  using U16 = std::vector<uint16_t>;
  using U8 = std::vector<uint8_t>;
  EXPECT_EQ(multiply(U16{0x3f80, 0xc000}, U16{0x4040, 0x3f00}, 0.0F, tiles::ProductType::kBF16), 3.0F - 1.0F);
  // 1.5, -448, the smallest one 2^-9, and 2^-6, the smallest normal one.
  EXPECT_EQ(multiply(U8{0x3c, 0xfe, 0x01, 0x08}, U8{0x38, 0x38, 0x38, 0x40}, 0.0F, tiles::ProductType::kE4M3),
            1.5F - 448 + 0x1p-9F + 2 * 0x1p-6F);
  EXPECT_EQ(multiply(U8{0x80, 0x7f}, U8{0x7f, 0x02}, int32_t{0}, tiles::ProductType::kI8), -128 * 127 + 127 * 2);
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
