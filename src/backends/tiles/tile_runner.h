// Runs a program on a tile device: stage by stage, a launch for each, or as one persistent step.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "backends/runner.h"
#include "backends/tiles/buffer_math.h"
#include "backends/tiles/step_choice.h"
#include "backends/tiles/tile_program.h"
#include "backends/tiles/tile_trace.h"

namespace redline {

struct TileRunnerOptions {
  StepChoice steps;
  /// If true, the launches of a step are captured as a graph and replayed. Text steps of up to 256 rows share the graph
  /// of the next larger of some sizes; image steps share one only with equal sizes. A graph is captured when its sizes
  /// occur a second time.
  bool graphs = true;
  double hang_seconds = 60;  ///< a kernel that waits for longer is aborted together with its step; 0: never
  /// Called with a sentence when a persistent step is aborted or refused, after which it and all later steps run by
  /// launches. If empty, such a step fails.
  std::function<void(const std::string&)> on_notice;
  Timeline* timeline = nullptr;  ///< must outlive the runner
  std::string device_name;       ///< name of the device in the timeline
};

class TileRunner final : public Runner {
 public:
  explicit TileRunner(Program program, TileRunnerOptions options = {});
  ~TileRunner() override;

  /// Returns the number of stored graphs.
  size_t num_graphs() const {
    return static_cast<size_t>(
        std::count_if(graphs_.begin(), graphs_.end(), [](const auto& g) { return g.second.graph != nullptr; }));
  }

  /// has_failed_products() returns true if the library has reported an error; num_kept_weights() returns the number of
  /// weights that are kept in the library's order.
  bool has_failed_products() const { return !failed_products_.empty(); }
  size_t num_kept_weights() const {
    return static_cast<size_t>(std::count_if(kept_weights_.begin(), kept_weights_.end(),
                                             [](const DeviceMemory& memory) { return memory.data() != nullptr; }));
  }

  const Program* program() const override { return &program_; }
  const StatePlan& states() const override { return program_.states; }
  Result<std::unique_ptr<StateMemory>> make_state_memory(std::span<const int64_t> num_pages) const override;
  Result<std::unique_ptr<BackendBuffer>> make_buffer(int64_t bytes) const override;
  Status step(const StepContext& context) override;
  void* host_input(std::string_view name) override;
  const void* host_output(std::string_view name) const override;
  int64_t resident_arena_bytes() const override { return code_.arena.size(); }
  bool bind(std::string_view name, void* data) override;
  std::string describe() const override { return fmt::format("steps: {}\n", steps_text()) + program_.to_string(); }
  std::string steps_text() const override { return options_.steps.text(); }
  Result<std::vector<StageTime>> time_stages(double seconds) override;

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
  /// Appends a state group's tables to step_bytes_; the result holds their offsets. Raises `needed_partials` to the
  /// number that they need.
  tiles::StateTables group_tables(const StepContext& context, size_t group, int64_t& needed_partials);
  /// Appends the parts of the step's adapters, with their factors in the memory of the device.
  Status append_adapters(const StepContext& context, tiles::StepTables& tables);
  Result<const float*> upload_factor(const Adapter& adapter, const void* factor, int64_t rows, int64_t cols);
  template <class T>
  const T* append(std::span<const T> items);
  void append_samples(const StepContext& context, tiles::StepTables& tables);
  Status run(const StepContext& context);
  Status download_outputs(const StepContext& context);
  /// Returns the sizes whose graph serves the step; nullopt: there is no graph for it.
  std::optional<SymbolValues> graph_sizes(const SymbolValues& sizes) const;
  Status run_graph(const tiles::ProgramTables& tables, const SymbolValues& sizes);
  /// Launches each stage.
  Status launch_stages(const tiles::ProgramTables& tables, const SymbolValues& sizes);
  Status launch_stage(const tiles::ProgramTables& tables, size_t stage, const SymbolValues& sizes);
  /// Returns true if the library computes a stage of `rows` rows.
  bool is_by_library(size_t stage, int64_t rows);
  /// Launches the kernels and the library product of a stage that the library computes.
  Status multiply_by_library(const tiles::ProgramTables& tables, size_t stage, int32_t rows);
  /// Copies weights to the library's order, as many as memory allows, before the first step in which the library
  /// multiplies. The other weights are copied again in every step.
  void keep_weights(const tiles::ProgramTables& tables, const SymbolValues& sizes);
  /// Returns nullptr if the weight of the stage is not kept.
  const uint8_t* kept_weight(size_t stage) const {
    return stage < kept_weights_.size() ? kept_weights_[stage].data() : nullptr;
  }
  void drop_graphs();
  Result<tiles::ProgramTables> program_tables();
  /// Runs a persistent step. Returns "" on success, else the reason why there is no result: the device refused the
  /// step, or it was aborted.
  Result<std::string> run_persistent();
  using Clock = std::chrono::steady_clock;
  /// Waits for the end of the launches since `begin`. Returns "" when they have ended, or, if they are aborted, a
  /// description of what they wait for.
  Result<std::string> await(bool is_persistent, Clock::time_point begin);
  std::string describe_hang(const tiles::HangReport& hang, bool is_persistent) const;
  /// Returns the events whose counts are too low.
  Result<std::string> list_missing_events();

  Program program_;
  TileProgram& code_;
  TileRunnerOptions options_;
  std::unique_ptr<TileTrace> trace_;
  std::vector<HostPort> inputs_, outputs_;  ///< ports that are not bound
  bool has_new_addresses_ = false;          ///< bound values have new addresses: the constants must be uploaded again
  std::vector<uint8_t> step_bytes_;         ///< StepTables, then the tables that they point to
  DeviceMemory step_memory_, partials_;
  mutable std::shared_ptr<DeviceBufferMath> math_;  ///< shared by the buffers that make_buffer() has made
  /// Device copies of recently used adapters. An adapter that no step has used for kIdleSteps is dropped.
  struct DeviceAdapter {
    std::shared_ptr<const Adapter> adapter;
    std::map<const void*, DeviceMemory> factors;
    int64_t last_step = 0;
  };
  std::map<const Adapter*, DeviceAdapter> adapters_;
  /// A captured graph of launches and the step that used it last.
  struct StepGraph {
    void* graph = nullptr;
    int64_t last_step = 0;
  };
  std::map<std::vector<int64_t>, StepGraph> graphs_;  ///< the key is the sizes of a step
  std::vector<DeviceMemory> kept_weights_;  ///< parallel to the stages; empty until the library first multiplies
  std::set<std::array<int64_t, 3>> failed_products_;  ///< rows, columns, k for which the library has reported an error
  int64_t own_rows_ = 0;                              ///< OpenDevice::own_rows() when the program was compiled
  SymbolValues last_sizes_;                           ///< sizes of the last step
  int64_t steps_ = 0;
  uint64_t epoch_ = 0;
  Status failed_;  ///< an error of the device, after which further steps are refused
};

}  // namespace redline
