// The emulated device behind the table of device functions.
#pragma once

#include <memory>

#include "base/worker_team.h"
#include "kernels/emu/machine.h"
#include "kernels/tiles/tile_device.h"

namespace redline::emu {

struct EmulatedDeviceOptions {
  int multiprocessors = 4;
  /// Runs the blocks of a launch; nullptr: the calling thread. It must outlive the device, and the caller of launch()
  /// holds the runtime's mutex.
  WorkerTeam* team = nullptr;
  MachineOptions machine;
};

/// Freed by TileDevice::close.
tiles::TileDevice* open_emulated_device(const EmulatedDeviceOptions& options);
/// Sets the options of later runs, for tests.
void set_machine_options(tiles::TileDevice& device, const MachineOptions& options);

}  // namespace redline::emu
