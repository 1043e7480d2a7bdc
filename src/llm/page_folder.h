// The folder that page stores of several engines and processes write to, with one limit of size for all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace redline {

/// A folder of cache files. A writer holds the lock of the folder, so that all files together never exceed the limit.
/// The lock is a file, `usage`, which also stores the sum of the sizes: the files are listed only if some must be
/// removed, or after a writer has crashed. Not thread-safe.
class PageFolder {
 public:
  /// Opens a folder, and removes temporary files of crashed writers and files beyond the limit. io: the folder cannot
  /// be created or written to.
  static Result<PageFolder> open(std::string folder, int64_t max_bytes);
  ~PageFolder();
  PageFolder(PageFolder&& other) noexcept;
  PageFolder& operator=(PageFolder&&) = delete;

  struct Added {
    bool is_there = false;  ///< the file is in the folder; false: there is no room for it
    std::vector<std::string> evicted;
  };
  /// Writes the file `name`, unless it exists. If the limit is reached, the least recently used files are removed, but
  /// not `parent` ("": none). The time of use is set to just before that of the parent, so that the file is removed
  /// before its parent.
  Result<Added> add(const std::string& name, const std::string& parent, std::span<const uint8_t> contents);
  /// Marks files as used now; the first name becomes the most recently used one.
  void use(std::span<const std::string> names);
  /// Makes the next writer list the folder. Called after a file was removed without the lock.
  void count_again() { counts_again_ = true; }
  /// Returns the names of the files, least recently used first.
  std::vector<std::string> names() const;
  /// Returns the bytes of all files at the last scan.
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
