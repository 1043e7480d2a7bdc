#include "redline/runtime.h"

#include "backends/cpu/executor.h"
#include "base/settings.h"
#include "base/topology.h"
#include "runtime/runtime_resources.h"

namespace redline {

RuntimeResources::RuntimeResources(int threads, const CpuKernels& kernels, TimelineFile timeline)
    : hang_seconds(ExecutorOptions().hang_seconds), kernels_(kernels), isa_(cpu_isa_in_use()),
      team_(threads, {kernels.worker_begin, kernels.worker_end}), timeline_(std::move(timeline)) {}

RuntimeResources::~RuntimeResources() { timeline_.write(); }

Result<std::shared_ptr<OpenDevice>> RuntimeResources::device(const DeviceChoice& choice) {
  const std::lock_guard lock(devices_mutex_);
  std::weak_ptr<OpenDevice>& kept = devices_[device_name(choice)];
  if (std::shared_ptr<OpenDevice> open = kept.lock()) return open;
  REDLINE_ASSIGN(std::shared_ptr<OpenDevice> opened, open_device(choice, team_));
  kept = opened;
  return opened;
}

void RuntimeResources::set_device(const DeviceChoice& choice, const std::shared_ptr<OpenDevice>& device) {
  const std::lock_guard lock(devices_mutex_);
  devices_[device_name(choice)] = device;
}

RuntimeResources& resources_of(Runtime& runtime) {
  auto* const resources = dynamic_cast<RuntimeResources*>(&runtime);
  REDLINE_CHECK(resources != nullptr);
  return *resources;
}

Result<std::shared_ptr<Runtime>> Runtime::open(const RuntimeOptions& options) {
  REDLINE_ASSIGN(const Settings settings, read_settings());
  REDLINE_ASSIGN(const int threads, choose_threads(options.threads, settings.threads));
  REDLINE_ASSIGN(const CpuKernels* kernels, cpu_kernels());
  TimelineFile timeline;
  if (!options.trace_file.empty()) {
    REDLINE_ASSIGN(timeline, TimelineFile::open(options.trace_file, threads, settings.trace_events));
  }
  auto resources = std::make_shared<RuntimeResources>(threads, *kernels, std::move(timeline));
  resources->hang_seconds = settings.hang_seconds;
  REDLINE_ASSIGN(resources->step_mode, parse_step_mode(settings.device_steps));
  REDLINE_ASSIGN(resources->weight_cache.cache, read_cache_settings());
  resources->weight_cache.kernels = resources->isa();
  return std::shared_ptr<Runtime>(std::move(resources));
}

Result<std::shared_ptr<Runtime>> choose_runtime(std::shared_ptr<Runtime> shared, const RuntimeOptions& own) {
  if (!shared) return Runtime::open(own);
  if (own.threads != 0 && own.threads != shared->threads())
    return invalid_argument("threads {}: the shared runtime has {}", own.threads, shared->threads());
  if (!own.trace_file.empty())
    return invalid_argument("{}: a shared runtime writes one timeline; name the file when it is opened",
                            own.trace_file);
  return shared;
}

}  // namespace redline
