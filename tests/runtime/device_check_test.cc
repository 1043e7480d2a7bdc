// The check of a device before it runs a model: it passes on a device that works and fails on one that does not.
#include "runtime/device_check.h"

#include <gtest/gtest.h>

#include "kernels/emu/emulated_device.h"
#include "redline/device_notice.h"
#include "support/test_device.h"

namespace redline::test {
namespace {

TEST(DeviceCheck, ADeviceThatWorks) {
  WorkerTeam team(2);
  for (const bool has_bulk_copies : {true, false}) {
    const Status status = check_device(
        open_test_device({.multiprocessors = 3, .team = &team, .machine = {.has_bulk_copies = has_bulk_copies}}), team);
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

decltype(tiles::TileDevice::download) g_download;
int g_downloads = 0, g_wrong_download = 0;

// A GPU whose kernels run to their end, with one wrong number at the end.
TEST(DeviceCheck, WrongNumbersAreFound) {
  WorkerTeam team(2);
  // The wrong number is in a step of few rows, in a captured step, or in a step of many rows.
  for (const int wrong : {0, 2, 5}) {
    tiles::TileDevice* table = emu::open_emulated_device({.multiprocessors = 3, .team = &team});
    g_download = table->download;
    g_downloads = 0;
    g_wrong_download = wrong;
    table->download = [](void* self, void* to, const void* from, int64_t bytes) {
      const int32_t result = g_download(self, to, from, bytes);
      const bool is_result = bytes != sizeof(tiles::HangReport);
      if (is_result && g_downloads++ == g_wrong_download) static_cast<float*>(to)[bytes / 4 - 1] += 100;
      return result;
    };
    const Status status = check_device(std::make_shared<OpenDevice>(table), team);
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_NE(status.message().find("compute wrong numbers"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(wrong < 3 ? "of 3 rows" : "of 70 rows"), std::string::npos) << status.message();
  }
}

// A library that multiplies wrongly, or not at all, is not used: the device computes with its own kernels.
TEST(DeviceCheck, AWrongLibraryIsDropped) {
  WorkerTeam team(2);
  for (const auto& [is_wrong, fails] : {std::pair{false, false}, {true, false}, {true, true}}) {
    tiles::TileDevice* table = emu::open_emulated_device({.multiprocessors = 3, .team = &team, .has_library = true});
    if (is_wrong) table->multiply = [](void*, const tiles::MatrixProduct*) { return 0; };
    if (fails) table->multiply = [](void*, const tiles::MatrixProduct*) { return 1; };
    const auto device = std::make_shared<OpenDevice>(table);
    const Status status = check_device(device, team);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(device->table().library == nullptr, is_wrong);
  }
}

// A persistent step that computes nothing, or that hangs, is not used: the device runs launches.
TEST(DeviceCheck, AWrongPersistentStepIsDropped) {
  WorkerTeam team(2);
  const auto works = std::make_shared<OpenDevice>(emu::open_emulated_device({.multiprocessors = 3, .team = &team}));
  ASSERT_TRUE(check_device(works, team).ok());
  EXPECT_EQ(works->persistent_obstacle(), "");
  for (const bool hangs : {false, true}) {
    std::vector<std::string> notices;
    on_device_notice([&](const std::string& text) { notices.push_back(text); });
    tiles::TileDevice* table =
        emu::open_emulated_device({.multiprocessors = 3,
                                   .team = &team,
                                   .machine = {.fault = hangs ? emu::Fault::kLostNotify : emu::Fault::kNone}});
    if (!hangs) table->run_program = [](void*, const tiles::ProgramTables*, int32_t) { return 0; };
    const auto device = std::make_shared<OpenDevice>(table);
    const Status status = check_device(device, team);
    on_device_notice(nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(device->persistent_obstacle(), "the check of the device failed");
    ASSERT_EQ(notices.size(), 1u);
    EXPECT_NE(notices[0].find(hangs ? "did not end within 2 s" : "compute wrong numbers"), std::string::npos)
        << notices[0];
  }
}

TEST(DeviceCheck, AStepThatFailsIsFound) {
  WorkerTeam team(2);
  const Status status =
      check_device(std::make_shared<OpenDevice>(emu::open_emulated_device(
                       {.multiprocessors = 3, .team = &team, .machine = {.fault = emu::Fault::kWrongParity}})),
                   team);
  EXPECT_EQ(status.code(), Code::unsupported) << status.message();
}

}  // namespace
}  // namespace redline::test
