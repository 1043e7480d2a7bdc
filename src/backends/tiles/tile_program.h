// The tile payload of a program: kernels, their arguments, and memory of the device.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/tiles/device_memory.h"
#include "graph/program.h"
#include "kernels/tiles/kernels.h"

namespace redline {

/// The output of Program that holds Runner::sampled().
inline constexpr std::string_view kSampledOutput = "sampled";

struct TileProgram : ProgramPayload {
  std::shared_ptr<OpenDevice> device;
  std::string sample_from;                ///< as in TileCompileOptions
  std::vector<tiles::StageTable> stages;  ///< parallel to Program::stages
  DeviceMemory arena, weights;
  /// Of each stage, how the device's library multiplies instead of the kernel; cols 0: it does not.
  struct LibraryStage {
    int32_t cols = 0, k = 0;
    bool has_epilogue = false;
    size_t y = 0;  ///< where host_constants has the address of y
  };
  std::vector<LibraryStage> library_stages;  ///< parallel to stages; empty: none
  /// What a stage reads and writes, parallel to stages: its packed weights, and its values in the arena.
  struct StageCost {
    int64_t weight_bytes = 0, weight_elements = 0;
    Dim value_elements = 0;
  };
  std::vector<StageCost> costs;
  DeviceMemory library_memory;
  int64_t library_x = 0, library_y = 0;  ///< where in it; the weight comes first
  DeviceMemory constants;                ///< the arguments of all stages, with their addresses
  std::vector<uint8_t> host_constants;
  std::map<std::string, std::vector<size_t>, std::less<>> bound;  ///< places of the addresses of bound values in them
  DeviceMemory stage_tables;
  // Of persistent steps.
  DeviceMemory tasks, list_begin, waits, notifies, counters, hang;
  std::vector<std::shared_ptr<AdapterSite>> sites;  ///< of adapters, by their number in kernel arguments
  int64_t partial_floats_per_row = 0;               ///< of attention: partial results of a row and a chunk, at most
  std::vector<void*> inputs, outputs;               ///< of the device, as Program::inputs and outputs

  static TileProgram& of(Program& program) { return static_cast<TileProgram&>(*program.payload); }
  static const TileProgram& of(const Program& program) { return static_cast<const TileProgram&>(*program.payload); }
};

}  // namespace redline
