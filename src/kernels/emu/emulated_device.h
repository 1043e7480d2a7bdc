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
  int64_t memory_bytes = 0;  ///< that the device has; 0: as much as the host gives
  bool has_library = false;  ///< TileDevice::multiply
  /// Of a persistent step, blocks that run at the same time; -1: one for each multiprocessor; 0: a device without
  /// cooperative launches.
  int persistent_blocks = -1;
  bool refuses_persistent = false;           ///< run_program() gives kNotLaunched
  int64_t staging_bytes = int64_t{1} << 20;  ///< of each of the two buffers
};

/// Freed by TileDevice::close.
tiles::TileDevice* open_emulated_device(const EmulatedDeviceOptions& options);
/// Sets the memory of the device, for tests: EmulatedDeviceOptions::memory_bytes.
void set_memory_bytes(tiles::TileDevice& device, int64_t bytes);
/// Sets the options of later runs, for tests.
void set_machine_options(tiles::TileDevice& device, const MachineOptions& options);

}  // namespace redline::emu
