// The folder that page stores write to: several engines, also of other processes, and one limit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace redline {

/// Who writes holds the lock of the folder, so that its files together never take more than the limit. The lock is a
/// file, `usage`, which also has the sum: the files are listed only when some must go, or after a writer died. Not
/// thread-safe.
class PageFolder {
 public:
  /// Also removes what dead writers have left, and files beyond the limit. io: the folder cannot be created or written
  /// to.
  static Result<PageFolder> open(std::string folder, int64_t max_bytes);
  ~PageFolder();
  PageFolder(PageFolder&& other) noexcept;
  PageFolder& operator=(PageFolder&&) = delete;

  struct Added {
    bool is_there = false;  ///< false: there is no room
    std::vector<std::string> evicted;
  };
  /// Gives the file `name` these contents, unless it is there already. Files that were used least recently go when the
  /// limit is reached, but not `parent` ("": none). Counts as used just before the parent, so that it goes before it.
  Result<Added> add(const std::string& name, const std::string& parent, std::span<const uint8_t> contents);
  /// The first name is the one used most recently.
  void use(std::span<const std::string> names);
  /// A file was removed without the lock: the next writer lists the folder.
  void count_again() { counts_again_ = true; }
  /// Names of the files, used least recently first.
  std::vector<std::string> names() const;
  /// Bytes of all files at the last scan.
  int64_t bytes() const { return bytes_; }
  const std::string& path() const { return folder_; }

 private:
  PageFolder(std::string folder, int64_t max_bytes) : folder_(std::move(folder)), max_bytes_(max_bytes) {}
  class Lock;
  int64_t read_usage() const;
  void write_usage(int64_t bytes) const;
  void count();
  void make_room(int64_t bytes, const std::string& parent, std::vector<std::string>& evicted);

  std::string folder_;
  int64_t max_bytes_, bytes_ = 0;
  bool counts_again_ = false;
  int usage_ = -1;
};

}  // namespace redline
