// Task timings of workers and devices for `--trace FILE`, in the format of Perfetto and chrome://tracing.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "graph/program.h"

namespace redline {

class Timeline {
 public:
  /// Reserves space for `capacity` tasks per worker up front, so recording does not allocate.
  Timeline(int workers, int64_t capacity);

  static constexpr uint32_t kAllTiles = UINT32_MAX;
  struct Record {
    uint32_t program;       ///< the program's number, returned by add_program()
    uint32_t stage, index;  ///< index kAllTiles: the whole stage
    int64_t step;
    int64_t wait_ns, begin_ns, end_ns;  ///< start of the wait, start and end of the task; steady clock
  };
  static int64_t now_ns();
  /// Copies the names that write() prints, so the program may be destroyed first. Not thread-safe, except for add().
  uint32_t add_program(const Program& program);
  /// Returns the lane of one unit of a device, such as "SM 3" of "cuda:0"; the same names give the same lane. The lane
  /// grows with its records, which must come from one thread at a time. Not thread-safe, except for add() to other
  /// lanes.
  int device_lane(const std::string& device, const std::string& unit);
  /// Adds a record. `lane` is a worker, or a result of device_lane().
  void add(int lane, const Record& record) {
    Lane& to = lanes_[static_cast<size_t>(lane)];
    if (to.used < to.records.size() || grow(to)) to.records[to.used++] = record;
    else ++to.dropped;
  }
  /// Returns the number of tasks dropped because the buffer was full.
  int64_t dropped() const;
  /// Writes the JSON: one track per worker and per unit of a device, one slice per task and per wait longer than 1 us.
  /// io: the file cannot be written.
  Status write(const std::string& path) const;

 private:
  struct alignas(64) Lane {
    std::string device, name;  ///< device "": the lane is a worker of the CPU
    std::vector<Record> records;
    size_t used = 0;
    int64_t dropped = 0;
  };
  struct StageName {
    std::string name;
    std::string_view op;
  };
  struct ProgramNames {
    std::string name;
    std::vector<StageName> stages;
  };
  bool grow(Lane& lane) const;
  int64_t capacity_;        ///< maximum number of records per lane
  std::deque<Lane> lanes_;  ///< a deque, so that lanes do not move when a device adds more
  std::vector<ProgramNames> programs_;
};

/// A timeline with its output file, for engines that write it on close.
class TimelineFile {
 public:
  /// Creates the file. It is checked before the run, because a failure at its end would lose the data. io: the file
  /// cannot be created or opened.
  static Result<TimelineFile> open(const std::string& path, int workers, int64_t capacity);
  TimelineFile() = default;
  /// Returns null when tracing is off.
  Timeline* timeline() const { return timeline_.get(); }
  /// Writes the file. Errors go to stderr, because the caller is a destructor.
  void write() const;

 private:
  std::string path_;
  std::unique_ptr<Timeline> timeline_;
};

}  // namespace redline
