// Runs a program on a tile device: stage by stage, a launch for each, or as one persistent step.
#pragma once

#include <map>

#include "backends/tiles/tile_program.h"

namespace redline {

struct TileRunnerOptions {
  /// Steps of at most this many rows run as one persistent launch of the program's task lists. 0: none.
  int64_t persistent_rows = 0;
};

class TileRunner final : public Runner {
 public:
  explicit TileRunner(Program program, TileRunnerOptions options = {});

  const Program* program() const override { return &program_; }
  const StatePlan& states() const override { return program_.states; }
  Result<std::unique_ptr<StateMemory>> make_state_memory(std::span<const int64_t> num_pages) const override;
  Result<std::unique_ptr<BackendBuffer>> make_buffer(int64_t bytes) const override;
  Status step(const StepContext& context) override;
  void* host_input(std::string_view name) override;
  const void* host_output(std::string_view name) const override;
  int64_t resident_arena_bytes() const override { return code_.arena.size(); }
  bool bind(std::string_view, void*) override { return false; }
  std::string describe() const override { return program_.to_string(); }

 private:
  struct HostPort {
    const Program::Port* port;
    void* device;
    std::vector<uint8_t> data;
    int64_t bytes(const SymbolValues& sizes) const { return num_elements(port->shape).eval(sizes) * 4; }
  };
  std::vector<HostPort> host_ports(const std::vector<Program::Port>& ports, const std::vector<void*>& addresses) const;
  Status check_sizes(const StepContext& context) const;
  Status upload_step(const StepContext& context);
  /// Appends a state group's tables to step_bytes_, which then holds their offsets; `needed_partials` grows to what
  /// they need.
  tiles::StateTables group_tables(const StepContext& context, size_t group, int64_t& needed_partials);
  /// The parts of the step's adapters, with their factors in the memory of the device.
  Status append_adapters(const StepContext& context, tiles::StepTables& tables);
  Result<const float*> upload_factor(const Adapter& adapter, const void* factor, int64_t rows, int64_t cols);
  template <class T>
  const T* append(std::span<const T> items);
  Status run(const StepContext& context);

  Program program_;
  TileProgram& code_;
  TileRunnerOptions options_;
  std::vector<HostPort> inputs_, outputs_;
  std::vector<uint8_t> step_bytes_;  ///< StepTables, then the tables that they point to
  DeviceMemory step_memory_, partials_;
  /// Of the adapters of the last steps. An adapter that no step has used for kIdleSteps is dropped.
  struct DeviceAdapter {
    std::shared_ptr<const Adapter> adapter;
    std::map<const void*, DeviceMemory> factors;
    int64_t last_step = 0;
  };
  std::map<const Adapter*, DeviceAdapter> adapters_;
  int64_t steps_ = 0;
  uint64_t epoch_ = 0;
  Status failed_;  ///< an error of the device: further steps are refused
};

}  // namespace redline
