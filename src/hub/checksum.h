// The checksums that the Hub keeps of its files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"

namespace redline {

/// SHA-256 of large files (Git LFS), SHA-1 of a Git blob for the others; the length of the expected text tells which.
class FileChecksum {
 public:
  /// `expected`: 64 or 40 hexadecimal digits; anything else has no checksum, and matches() is true.
  /// `bytes`: the size of the whole file, which is part of a Git blob.
  FileChecksum(std::string_view expected, int64_t bytes);
  ~FileChecksum();
  FileChecksum(const FileChecksum&) = delete;
  FileChecksum& operator=(const FileChecksum&) = delete;

  void add(std::string_view bytes);
  /// Adds the first `bytes` of a file. io: they cannot be read.
  Status add_file(const std::string& path, int64_t bytes);
  /// Whether all bytes that were added are those of the file. Called once.
  bool matches();
  /// What was computed, after matches().
  const std::string& actual() const { return actual_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::string expected_, actual_;
};

}  // namespace redline
