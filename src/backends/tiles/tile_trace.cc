#include "backends/tiles/tile_trace.h"

#include <algorithm>

namespace redline {

TileTrace::TileTrace(Timeline& timeline, std::string device_name, std::shared_ptr<OpenDevice> device,
                     const Program& program)
    : timeline_(timeline), device_name_(std::move(device_name)), device_(std::move(device)),
      timeline_program_(timeline.add_program(program)), stages_(program.stages.size()) {
  size_t tasks = 0;
  for (const std::vector<Task>& list : program.tasks) tasks += list.size();
  tasks_.resize(tasks);
}

Status TileTrace::attach(tiles::ProgramTables& tables) {
  const auto bytes = [](const auto& items) { return static_cast<int64_t>(items.size() * sizeof(items[0])); };
  if (task_memory_.data() == nullptr) {
    REDLINE_ASSIGN(task_memory_, DeviceMemory::make(device_, bytes(tasks_)));
    REDLINE_ASSIGN(stage_memory_, DeviceMemory::make(device_, bytes(stages_)));
  }
  tables.task_times = reinterpret_cast<tiles::TaskTimes*>(task_memory_.data());
  tables.stage_times = reinterpret_cast<tiles::StageTimes*>(stage_memory_.data());
  return {};
}

Status TileTrace::begin() {
  begin_ns_ = Timeline::now_ns();
  return device_->clear(stage_memory_.data(), stage_memory_.size());
}

void TileTrace::align(uint64_t first, uint64_t last) {
  const int64_t least = begin_ns_ - static_cast<int64_t>(first);
  const int64_t most = Timeline::now_ns() - static_cast<int64_t>(last);
  offset_ns_ = std::clamp(offset_ns_, least, std::max(least, most));
}

Status TileTrace::add_tasks(const Program& program, int64_t step) {
  REDLINE_TRY(device_->download(tasks_.data(), task_memory_.data(), task_memory_.size()));
  if (tasks_.empty()) return {};
  uint64_t first = UINT64_MAX, last = 0;
  for (const tiles::TaskTimes& times : tasks_) {
    first = std::min(first, times.wait);
    last = std::max(last, times.end);
  }
  align(first, last);
  for (size_t l = list_lanes_.size(); l < program.tasks.size(); ++l)
    list_lanes_.push_back(timeline_.device_lane(device_name_, fmt::format("SM {}", l)));
  size_t at = 0;
  for (size_t l = 0; l < program.tasks.size(); ++l)
    for (const Task& task : program.tasks[l]) {
      const tiles::TaskTimes& times = tasks_[at++];
      timeline_.add(list_lanes_[l], {timeline_program_, task.stage, task.index, step, host_time(times.wait),
                                     host_time(times.begin), host_time(times.end)});
    }
  return {};
}

Status TileTrace::add_stages(int64_t step, const std::function<bool(size_t stage)>& ends_later) {
  REDLINE_TRY(device_->download(stages_.data(), stage_memory_.data(), stage_memory_.size()));
  const auto begin_of = [&](size_t s) { return ~stages_[s].not_begin; };
  uint64_t first = UINT64_MAX, last = 0;
  for (size_t s = 0; s < stages_.size(); ++s) {
    if (stages_[s].end == 0) continue;  // not launched: it has no rows
    first = std::min(first, begin_of(s));
    last = std::max(last, stages_[s].end);
  }
  if (last == 0) return {};
  align(first, last);
  if (stream_lane_ < 0) stream_lane_ = timeline_.device_lane(device_name_, "stream");
  for (size_t s = 0; s < stages_.size(); ++s) {
    if (stages_[s].end == 0) continue;
    uint64_t end = stages_[s].end;
    if (ends_later(s)) {
      size_t next = s + 1;
      while (next < stages_.size() && stages_[next].end == 0) ++next;
      if (next < stages_.size()) end = begin_of(next);
    }
    const int64_t begin_ns = host_time(begin_of(s));
    timeline_.add(stream_lane_, {timeline_program_, static_cast<uint32_t>(s), Timeline::kAllTiles, step, begin_ns,
                                 begin_ns, host_time(end)});
  }
  return {};
}

}  // namespace redline
