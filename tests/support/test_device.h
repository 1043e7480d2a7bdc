// The tile device that tests run on: the emulated one, or on a machine with a GPU what REDLINE_TEST_DEVICE names
// (tools/device_check).
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kernels/emu/emulated_device.h"
#include "runtime/device.h"

namespace redline::test {

inline std::string test_device() {
  const char* name = std::getenv("REDLINE_TEST_DEVICE");
  return name ? name : "emu";
}
/// Opens the device for tests that open one themselves. `emulated`: options of the emulated device.
inline std::shared_ptr<OpenDevice> open_test_device(const emu::EmulatedDeviceOptions& emulated) {
  if (test_device() == "emu") return std::make_shared<OpenDevice>(emu::open_emulated_device(emulated));
  const auto choice = choose_device(test_device());
  EXPECT_TRUE(choice.ok()) << choice.status().message();
  auto device = open_device(choice.ok() ? *choice : DeviceChoice{DeviceKind::kEmulated}, *emulated.team);
  EXPECT_TRUE(device.ok()) << device.status().message();
  return device.ok() ? *device : std::make_shared<OpenDevice>(emu::open_emulated_device(emulated));
}

}  // namespace redline::test
