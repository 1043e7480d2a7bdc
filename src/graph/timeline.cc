#include "graph/timeline.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "base/late_failure.h"

namespace redline {

Timeline::Timeline(int workers, int64_t capacity) : capacity_(capacity) {
  for (int w = 0; w < workers; ++w) {
    lanes_.emplace_back().name = fmt::format("worker {}", w);
    lanes_.back().records.resize(static_cast<size_t>(capacity));
  }
}

int Timeline::device_lane(const std::string& device, const std::string& unit) {
  const auto at = std::find_if(lanes_.begin(), lanes_.end(),
                               [&](const Lane& lane) { return lane.device == device && lane.name == unit; });
  const auto number = static_cast<int>(at - lanes_.begin());
  if (at == lanes_.end()) {
    lanes_.emplace_back().device = device;
    lanes_.back().name = unit;
  }
  return number;
}

bool Timeline::grow(Lane& lane) const {
  if (lane.device.empty() || lane.used >= static_cast<size_t>(capacity_)) return false;
  lane.records.resize(std::min(static_cast<size_t>(capacity_), std::max<size_t>(1024, 2 * lane.used)));
  return true;
}

int64_t Timeline::now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

uint32_t Timeline::add_program(const Program& program) {
  ProgramNames& names = programs_.emplace_back();
  names.name = program.name;
  for (const StagePlan& stage : program.stages) names.stages.push_back({stage.name, stage.op});
  return static_cast<uint32_t>(programs_.size() - 1);
}

int64_t Timeline::dropped() const {
  int64_t sum = 0;
  for (const Lane& lane : lanes_) sum += lane.dropped;
  return sum;
}

Status Timeline::write(const std::string& path) const {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (!file) return io("{}: cannot write the timeline: {}", path, std::strerror(errno));
  int64_t origin = INT64_MAX;
  for (const Lane& lane : lanes_)
    if (lane.used) origin = std::min(origin, lane.records[0].wait_ns);
  auto us = [&](int64_t ns) { return static_cast<double>(ns - origin) / 1000.0; };
  // fmt::print(FILE*) throws when the disk is full, so the text is formatted here and written by fwrite.
  fmt::memory_buffer text;
  auto put = [&]<class... A>(fmt::format_string<A...> format, A&&... args) {
    fmt::format_to(std::back_inserter(text), format, std::forward<A>(args)...);
  };
  auto flush = [&] {
    const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    text.clear();
    return whole;
  };
  bool written = true;
  put("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
  put(R"({{"ph":"M","pid":1,"name":"process_name","args":{{"name":"redline"}}}})");
  std::vector<std::string> processes = {""};
  for (size_t w = 0; w < lanes_.size(); ++w) {
    const Lane& lane = lanes_[w];
    const auto process = std::find(processes.begin(), processes.end(), lane.device);
    const auto pid = process - processes.begin() + 1;
    if (process == processes.end()) {
      processes.push_back(lane.device);
      put(",\n"
          R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":"{}"}}}})",
          pid, lane.device);
    }
    put(",\n"
        R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":"{}"}}}})",
        pid, w, lane.name);
    for (size_t i = 0; i < lane.used && written; ++i) {
      const Record& r = lane.records[i];
      const ProgramNames& program = programs_[r.program];
      const StageName& stage = program.stages[r.stage];
      constexpr int64_t kShownWaitNs = 1000;
      if (r.begin_ns - r.wait_ns >= kShownWaitNs)
        put(",\n"
            R"({{"ph":"X","pid":{},"tid":{},"cat":"wait","name":"wait","ts":{:.3f},"dur":{:.3f}}})",
            pid, w, us(r.wait_ns), static_cast<double>(r.begin_ns - r.wait_ns) / 1000.0);
      put(",\n"
          R"({{"ph":"X","pid":{},"tid":{},"cat":"{}","name":"{}","ts":{:.3f},"dur":{:.3f})",
          pid, w, stage.op, stage.name, us(r.begin_ns), static_cast<double>(r.end_ns - r.begin_ns) / 1000.0);
      put(R"(,"args":{{"program":"{}",)", program.name);
      if (r.index != kAllTiles) put(R"("tile":{},)", r.index);
      put(R"("step":{}}}}})", r.step);
      constexpr size_t kFlushBytes = 1 << 16;
      if (text.size() >= kFlushBytes) written = flush();
    }
  }
  put("\n]}}\n");
  written = flush() && written;
  if (std::fclose(file) != 0 || !written)
    return io("{}: the timeline could not be written whole: {}", path, std::strerror(errno));
  return {};
}

Result<TimelineFile> TimelineFile::open(const std::string& path, int workers, int64_t capacity) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666);
  // ENXIO: a pipe without a reader yet.
  if (fd < 0 && errno != ENXIO) return io("{}: cannot write the timeline: {}", path, std::strerror(errno));
  if (fd >= 0) ::close(fd);
  TimelineFile file;
  file.path_ = path;
  file.timeline_ = std::make_unique<Timeline>(workers, capacity);
  return file;
}

void TimelineFile::write() const {
  if (!timeline_) return;
  const Status written = timeline_->write(path_);
  std::string text;  // written by fputs: fmt::print throws if stderr is closed
  if (!written.ok()) text = fmt::format("redline: {}\n", written.message());
  else if (timeline_->dropped() > 0)
    text = fmt::format("redline: {}: {} tasks did not fit; raise REDLINE_TRACE_EVENTS\n", path_, timeline_->dropped());
  std::fputs(text.c_str(), stderr);
  if (!written.ok()) note_late_failure();
}

}  // namespace redline
