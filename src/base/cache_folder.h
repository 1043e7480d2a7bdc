// The folder in which Redline keeps what it can make again: $XDG_CACHE_HOME/redline, else ~/.cache/redline.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace redline {

struct CacheSettings {
  std::string folder;     ///< "": nothing is kept
  int64_t max_bytes = 0;  ///< of all its files together
};
/// What REDLINE_CACHE_DIR and REDLINE_CACHE_GB say. A size of 0 or a user without a home have no folder.
Result<CacheSettings> read_cache_settings();

struct CacheFile {
  std::string path;
  int64_t bytes = 0;    ///< on disk
  int64_t used_ns = 0;  ///< when it was last of use, since 1970
};
/// The path of a finished file.
std::string cache_path(const std::string& folder, const std::string& name);
/// The finished files, least recently used first. A folder that is not there is empty.
std::vector<CacheFile> list_cache(const std::string& folder);
/// Makes the open file the most recently used of `folder`: later than every other one, however close in time their uses are.
void mark_used(const std::string& folder, int fd);

/// Removes what must go before `bytes` more fit under `max_bytes`, least recently used first; and files that writers
/// left unfinished when they were killed. False when `bytes` do not fit at all, or the disk would be left with less
/// than the same amount again.
bool make_cache_room(const CacheSettings& settings, int64_t bytes);
/// Removes all of it; returns the bytes that this gave back. Programs that use a file keep what they have mapped.
int64_t clear_cache(const std::string& folder);

/// A file that appears under its name when it is complete: temporary name, lock, fsync, rename. Any number of processes
/// may make the same one at once; the last that ends gives it its content.
class CacheWriter {
 public:
  /// io: the folder or the file cannot be made.
  static Result<CacheWriter> create(const std::string& folder, const std::string& name);
  /// Removes what was not committed.
  ~CacheWriter();
  CacheWriter(CacheWriter&& other) noexcept;
  CacheWriter& operator=(CacheWriter&&) = delete;

  /// All of `bytes` at `offset`.
  Status write(const void* data, int64_t bytes, int64_t offset);
  /// Waits until [offset, offset + bytes) is on its way to the disk, so that the rest is never much.
  void flush(int64_t offset, int64_t bytes);
  Status commit();

 private:
  CacheWriter(std::string folder, std::string name) : folder_(std::move(folder)), name_(std::move(name)) {}
  std::string folder_, name_, temporary_;
  int fd_ = -1;
};

}  // namespace redline
