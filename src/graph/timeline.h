// What every worker did when: for `--trace FILE`, in the format that Perfetto and chrome://tracing open.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/program.h"

namespace redline {

class Timeline {
 public:
  /// Room for `capacity` tasks per worker, taken now so that recording allocates nothing.
  Timeline(int workers, int64_t capacity);

  struct Record {
    const Program* program;  ///< outlives the timeline's last write()
    uint32_t stage, index;
    int64_t step;
    int64_t wait_ns, begin_ns, end_ns;  ///< began waiting, began, ended; steady clock
  };
  static int64_t now_ns();
  void add(int worker, const Record& record) {
    Lane& lane = lanes_[static_cast<size_t>(worker)];
    if (lane.used < lane.records.size()) lane.records[lane.used++] = record;
    else ++lane.dropped;
  }
  /// Tasks that did not fit.
  int64_t dropped() const;
  /// Writes the JSON: one track per worker, a slice per task and per wait longer than 1 us. io: the file cannot be
  /// written.
  Status write(const std::string& path) const;

 private:
  struct alignas(64) Lane {
    std::vector<Record> records;
    size_t used = 0;
    int64_t dropped = 0;
  };
  std::vector<Lane> lanes_;
};

/// A timeline on its way to a file, for engines that write it when they close.
class TimelineFile {
 public:
  /// io: the file cannot be made or opened: said before the run, since its end is too late.
  static Result<TimelineFile> open(const std::string& path, int workers, int64_t capacity);
  TimelineFile() = default;
  /// Null when none is wanted.
  Timeline* timeline() const { return timeline_.get(); }
  /// Writes it; what went wrong goes to stderr, since a destructor has nobody to return it to.
  void write() const;

 private:
  std::string path_;
  std::unique_ptr<Timeline> timeline_;
};

}  // namespace redline
