// The tile payload of a program: kernels, their arguments, and memory of the device.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/runner.h"
#include "backends/tiles/device_memory.h"
#include "graph/program.h"
#include "kernels/tiles/kernels.h"

namespace redline {

struct TileProgram : ProgramPayload {
  std::shared_ptr<OpenDevice> device;
  /// Names of the outputs that the op sample reads and writes; "": the program does not sample.
  std::string sampled_logits, sampled_tokens;
  std::vector<tiles::StageTable> stages;  ///< parallel to Program::stages
  DeviceMemory arena, weights;
  /// The product that the device's library computes for a stage instead of the kernel. cols 0: the kernel computes it.
  struct LibraryStage {
    int32_t cols = 0, k = 0;
    bool has_epilogue = false;
    size_t y = 0;  ///< offset in host_constants of the address of y
  };
  std::vector<LibraryStage> library_stages;  ///< parallel to stages; empty: none
  /// Sizes of a stage's packed weights and of its values in the arena, parallel to stages.
  struct StageCost {
    int64_t weight_bytes = 0, weight_elements = 0;
    Dim value_elements = 0;
  };
  std::vector<StageCost> costs;
  DeviceMemory library_memory;
  int64_t library_x = 0, library_y = 0;  ///< offsets of x and y in library_memory; the weight comes first
  DeviceMemory constants;                ///< the arguments of all stages, with their addresses
  std::vector<uint8_t> host_constants;
  /// Offsets in the constants of the addresses of bound values.
  std::map<std::string, std::vector<size_t>, std::less<>> bound;
  DeviceMemory stage_tables;
  // Tables of persistent steps.
  DeviceMemory tasks, list_begin, waits, notifies, counters, hang;
  std::vector<std::shared_ptr<AdapterSite>> sites;  ///< sites of adapters, by their number in kernel arguments
  int64_t partial_floats_per_row = 0;  ///< attention: maximum size of the partial results of a row and a chunk
  std::vector<void*> inputs, outputs;  ///< device addresses of the ports in Program::inputs and outputs

  static TileProgram& of(Program& program) { return static_cast<TileProgram&>(*program.payload); }
  static const TileProgram& of(const Program& program) { return static_cast<const TileProgram&>(*program.payload); }
};

}  // namespace redline
