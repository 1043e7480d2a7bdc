// The implementation of include/redline/runtime.h: what the engines use of a runtime.
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
#include "runtime/placement_speeds.h"

namespace redline {

class RuntimeResources final : public Runtime {
 public:
  /// `timeline` may be empty.
  RuntimeResources(int threads, const CpuKernels& kernels, TimelineFile timeline = {});
  /// Writes the timeline.
  ~RuntimeResources() override;
  RuntimeResources(const RuntimeResources&) = delete;
  RuntimeResources& operator=(const RuntimeResources&) = delete;

  int threads() const override { return team_.size(); }
  const std::string& isa() const override { return isa_; }
  WorkerTeam& team() { return team_; }
  const CpuKernels& kernels() const { return kernels_; }
  Timeline* timeline() { return timeline_.timeline(); }
  StepWatchdog& watchdog() { return watchdog_; }
  /// Held while a program is compiled or runs: the workers and their scratch memory serve one at a time.
  FairMutex& mutex() { return mutex_; }

  /// The tile device, which all executables of the runtime share: their values stay on it from one to the next. As
  /// open_device() (runtime/device.h).
  Result<std::shared_ptr<OpenDevice>> device(const DeviceChoice& choice);
  /// For tests: device(choice) is this one, while it lives.
  void set_device(const DeviceChoice& choice, const std::shared_ptr<OpenDevice>& device);

  double hang_seconds;                              ///< see ExecutorOptions
  StepMode step_mode = StepMode::kAuto;             ///< of tile devices
  WeightCacheOptions weight_cache;                  ///< disabled unless set
  std::optional<PlacementSpeeds> placement_speeds;  ///< for tests: instead of measured ones
  std::optional<KvFormats> kv_formats;              ///< for tests: instead of chosen ones

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

/// Every Runtime is one of these.
RuntimeResources& resources_of(Runtime& runtime);

/// `shared`, or a runtime of the engine's own. invalid_argument: `own` has a setting that the shared runtime has
/// decided.
Result<std::shared_ptr<Runtime>> choose_runtime(std::shared_ptr<Runtime> shared, const RuntimeOptions& own);

}  // namespace redline
