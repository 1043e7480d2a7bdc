// The emulated device behind the table of device functions (kernels/tiles/tile_device.h).
#pragma once

#include <memory>

#include "base/worker_team.h"
#include "kernels/emu/machine.h"
#include "kernels/tiles/tile_device.h"

namespace redline::emu {

struct EmulatedDeviceOptions {
  int multiprocessors = 4;
  /// Runs the blocks of a launch; nullptr: the calling thread runs them. The team must outlive the device, and the
  /// caller of launch() must hold the runtime's mutex.
  WorkerTeam* team = nullptr;
  MachineOptions machine;
  int64_t memory_bytes = 0;  ///< memory of the device; 0: as much as the host gives
  bool has_library = false;  ///< TileDevice::multiply is available
  /// Number of blocks of a persistent step that run at the same time. -1: one for each multiprocessor; 0: a device
  /// without cooperative launches.
  int persistent_blocks = -1;
  bool refuses_persistent = false;           ///< run_program() returns kNotLaunched
  int64_t staging_bytes = int64_t{1} << 20;  ///< size of each of the two staging buffers
};

/// Opens a device, which TileDevice::close frees.
tiles::TileDevice* open_emulated_device(const EmulatedDeviceOptions& options);
/// Sets the memory of the device, for tests: EmulatedDeviceOptions::memory_bytes.
void set_memory_bytes(tiles::TileDevice& device, int64_t bytes);
/// Sets the options of later runs, for tests.
void set_machine_options(tiles::TileDevice& device, const MachineOptions& options);

}  // namespace redline::emu
