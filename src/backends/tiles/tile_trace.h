// Times of tasks and launches on a tile device, for a timeline.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backends/tiles/device_memory.h"
#include "graph/timeline.h"

namespace redline {

/// The tasks of a persistent step have a lane for each list, which is a multiprocessor. The launches of a step have one
/// lane together: a kernel's time is from the first of its warps that computes to the last one.
class TileTrace {
 public:
  /// `timeline` must outlive it. `device_name`: what the timeline calls the device.
  TileTrace(Timeline& timeline, std::string device_name, std::shared_ptr<OpenDevice> device, const Program& program);

  /// Kernels write times from now on. The addresses are the same in all steps: graphs hold them.
  Status attach(tiles::ProgramTables& tables);
  /// Before a step is launched.
  Status begin();
  /// After a step has ended. `step`: its number.
  Status add_tasks(const Program& program, int64_t step);
  /// `ends_later(s)`: something that no kernel times follows the last kernel of stage s, up to the next stage.
  Status add_stages(int64_t step, const std::function<bool(size_t stage)>& ends_later);

 private:
  /// The host's time of a device's, given the first and the last of a step. The two clocks count from different points:
  /// the difference changes no more than it must for the step to lie between its launch and its end.
  void align(uint64_t first, uint64_t last);
  int64_t host_time(uint64_t device_ns) const { return static_cast<int64_t>(device_ns) + offset_ns_; }

  Timeline& timeline_;
  std::string device_name_;
  std::shared_ptr<OpenDevice> device_;
  uint32_t timeline_program_;
  std::vector<tiles::TaskTimes> tasks_;
  std::vector<tiles::StageTimes> stages_;
  DeviceMemory task_memory_, stage_memory_;
  std::vector<int> list_lanes_;  ///< empty: no step was persistent
  int stream_lane_ = -1;
  int64_t begin_ns_ = 0, offset_ns_ = 0;
};

}  // namespace redline
