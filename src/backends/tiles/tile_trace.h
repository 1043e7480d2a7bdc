// Times of tasks and launches on a tile device, for a timeline.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backends/tiles/device_memory.h"
#include "graph/timeline.h"

namespace redline {

/// Records task and launch times. Each task list of a persistent step, which runs on one multiprocessor, has a lane.
/// The launches of a step share one lane: a kernel's time is from the first of its warps that computes to the last one.
class TileTrace {
 public:
  /// `timeline` must outlive the object. `device_name`: name of the device in the timeline.
  TileTrace(Timeline& timeline, std::string device_name, std::shared_ptr<OpenDevice> device, const Program& program);

  /// Makes kernels write times from now on. The addresses stay the same in all steps, because graphs store them.
  Status attach(tiles::ProgramTables& tables);
  /// Must be called before a step is launched.
  Status begin();
  /// Adds the tasks of a step that has ended. `step` is its number.
  Status add_tasks(const Program& program, int64_t step);
  /// Adds the launches of a step that has ended. `ends_later(s)`: untimed work follows the last kernel of stage s, up
  /// to the next stage.
  Status add_stages(int64_t step, const std::function<bool(size_t stage)>& ends_later);

 private:
  /// Sets the offset from device times to host times, given the first and the last device time of a step. The two
  /// clocks count from different points; the offset changes only as much as is needed for the step to lie between its
  /// launch and its end.
  void align(uint64_t first, uint64_t last);
  int64_t host_time(uint64_t device_ns) const { return static_cast<int64_t>(device_ns) + offset_ns_; }

  Timeline& timeline_;
  std::string device_name_;
  std::shared_ptr<OpenDevice> device_;
  uint32_t timeline_program_;
  std::vector<tiles::TaskTimes> tasks_;
  std::vector<tiles::StageTimes> stages_;
  DeviceMemory task_memory_, stage_memory_;
  std::vector<int> list_lanes_;  ///< one lane per task list; empty: no step was persistent
  int stream_lane_ = -1;
  int64_t begin_ns_ = 0, offset_ns_ = 0;
};

}  // namespace redline
