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

Timeline::Timeline(int workers, int64_t capacity) : lanes_(static_cast<size_t>(workers)) {
  for (Lane& lane : lanes_) lane.records.resize(static_cast<size_t>(capacity));
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
  for (size_t w = 0; w < lanes_.size(); ++w) {
    put(",\n"
        R"({{"ph":"M","pid":1,"tid":{},"name":"thread_name","args":{{"name":"worker {}"}}}})",
        w, w);
    for (size_t i = 0; i < lanes_[w].used && written; ++i) {
      const Record& r = lanes_[w].records[i];
      const ProgramNames& program = programs_[r.program];
      const StageName& stage = program.stages[r.stage];
      constexpr int64_t kShownWaitNs = 1000;
      if (r.begin_ns - r.wait_ns >= kShownWaitNs)
        put(",\n"
            R"({{"ph":"X","pid":1,"tid":{},"cat":"wait","name":"wait","ts":{:.3f},"dur":{:.3f}}})",
            w, us(r.wait_ns), static_cast<double>(r.begin_ns - r.wait_ns) / 1000.0);
      put(",\n"
          R"({{"ph":"X","pid":1,"tid":{},"cat":"{}","name":"{}","ts":{:.3f},"dur":{:.3f})",
          w, stage.op, stage.name, us(r.begin_ns), static_cast<double>(r.end_ns - r.begin_ns) / 1000.0);
      put(R"(,"args":{{"program":"{}","tile":{},"step":{}}}}})", program.name, r.index, r.step);
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
