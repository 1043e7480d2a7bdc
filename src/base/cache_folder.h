// The folder for data that Redline can regenerate: $XDG_CACHE_HOME/redline, else ~/.cache/redline.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace redline {

struct CacheSettings {
  std::string folder;     ///< "": caching is off
  int64_t max_bytes = 0;  ///< limit for the sum of all file sizes
};
/// Reads REDLINE_CACHE_DIR and REDLINE_CACHE_GB. Caching is off for size 0 and for a user without a home directory.
Result<CacheSettings> read_cache_settings();

struct CacheFile {
  std::string path;
  int64_t bytes = 0;    ///< size on disk
  int64_t used_ns = 0;  ///< time of last use, nanoseconds since 1970
};
/// Returns the path of a finished file.
std::string cache_path(const std::string& folder, const std::string& name);
/// Returns the finished files, least recently used first. Empty when the folder does not exist.
std::vector<CacheFile> list_cache(const std::string& folder);
/// Marks the open file as the most recently used of `folder`: strictly later than every other, even when uses are very
/// close in time.
void mark_used(const std::string& folder, int fd);

/// Evicts least recently used files until `bytes` more fit under `max_bytes`, and removes unfinished files of killed
/// writers. Returns false when `bytes` cannot fit, or when the disk would be left with less than `bytes` free.
bool make_cache_room(const CacheSettings& settings, int64_t bytes);
/// Removes all files and returns the bytes freed. Processes that have a file mapped keep it.
int64_t clear_cache(const std::string& folder);

/// A file that appears under its name only when complete: temporary name, lock, fsync, rename. Several processes may
/// write the same file at once; the last to commit wins.
class CacheWriter {
 public:
  /// Creates the temporary file. io: the folder or the file cannot be created.
  static Result<CacheWriter> create(const std::string& folder, const std::string& name);
  /// Removes the file unless it was committed.
  ~CacheWriter();
  CacheWriter(CacheWriter&& other) noexcept;
  CacheWriter& operator=(CacheWriter&&) = delete;

  /// Writes all of `bytes` at `offset`.
  Status write(const void* data, int64_t bytes, int64_t offset);
  /// Writes [offset, offset + bytes) to the disk and waits for it, so that little remains for the final fsync.
  void flush(int64_t offset, int64_t bytes);
  /// Gives the file its final name. `marks_used`: also calls mark_used(), which reads the times of all files in the
  /// folder.
  Status commit(bool marks_used = true);

 private:
  CacheWriter(std::string folder, std::string name) : folder_(std::move(folder)), name_(std::move(name)) {}
  std::string folder_, name_, temporary_;
  int fd_ = -1;
};

}  // namespace redline
