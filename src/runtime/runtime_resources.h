// The implementation of include/redline/runtime.h, and the parts of a runtime that engines use.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "backends/cpu/step_watchdog.h"
#include "backends/cpu/weight_cache.h"
#include "backends/tiles/step_choice.h"
#include "base/fair_mutex.h"
#include "base/worker_team.h"
#include "graph/timeline.h"
#include "kernels/cpu/cpu_kernels.h"
#include "redline/runtime.h"
#include "runtime/device.h"
#include "runtime/speeds.h"

namespace redline {

class RuntimeResources final : public Runtime {
 public:
  /// Starts the workers. `timeline` may be empty.
  RuntimeResources(int threads, const CpuKernels& kernels, TimelineFile timeline = {});
  /// Writes the timeline file.
  ~RuntimeResources() override;
  RuntimeResources(const RuntimeResources&) = delete;
  RuntimeResources& operator=(const RuntimeResources&) = delete;

  int threads() const override { return team_.size(); }
  const std::string& isa() const override { return isa_; }
  WorkerTeam& team() { return team_; }
  const CpuKernels& kernels() const { return kernels_; }
  Timeline* timeline() { return timeline_.timeline(); }
  StepWatchdog& watchdog() { return watchdog_; }
  /// Returns the lock that is held while a program is compiled or runs: the workers and their scratch memory serve one
  /// at a time.
  FairMutex& mutex() { return mutex_; }

  /// Returns the tile device that all executables of the runtime share. Values of one executable stay on it for the
  /// next. Errors as open_device() (runtime/device.h).
  Result<std::shared_ptr<OpenDevice>> device(const DeviceChoice& choice);
  /// For tests: makes device(choice) return `device` as long as it lives.
  void set_device(const DeviceChoice& choice, const std::shared_ptr<OpenDevice>& device);

  double hang_seconds;                              ///< see ExecutorOptions
  StepMode step_mode = StepMode::kAuto;             ///< step mode of tile devices
  WeightCacheOptions weight_cache;                  ///< caching is disabled unless this is set
  std::optional<PlacementSpeeds> placement_speeds;  ///< for tests: used instead of measured speeds
  std::optional<KvFormats> kv_formats;              ///< for tests: used instead of chosen formats

 private:
  const CpuKernels& kernels_;
  std::string isa_;
  WorkerTeam team_;
  TimelineFile timeline_;
  StepWatchdog watchdog_;
  FairMutex mutex_;
  std::mutex devices_mutex_;
  std::map<std::string, std::weak_ptr<OpenDevice>> devices_;
};

/// Casts a Runtime to its only implementation.
RuntimeResources& resources_of(Runtime& runtime);

/// Returns `shared`, or a new runtime for one engine. invalid_argument: `own` has a setting that the shared runtime
/// already fixes.
Result<std::shared_ptr<Runtime>> choose_runtime(std::shared_ptr<Runtime> shared, const RuntimeOptions& own);

}  // namespace redline
