// Computes the checksums that the Hub has for its files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"

namespace redline {

/// The checksum of a file: SHA-256 for large files (Git LFS), SHA-1 of a Git blob for others. The length of the
/// expected text determines which.
class FileChecksum {
 public:
  /// `expected`: 64 or 40 hexadecimal digits. For any other text nothing is checked, and matches() is true.
  /// `bytes`: the size of the whole file, which is part of a Git blob.
  FileChecksum(std::string_view expected, int64_t bytes);
  ~FileChecksum();
  FileChecksum(const FileChecksum&) = delete;
  FileChecksum& operator=(const FileChecksum&) = delete;

  void add(std::string_view bytes);
  /// Adds the first `bytes` of a file. io: they cannot be read.
  Status add_file(const std::string& path, int64_t bytes);
  /// Returns true if the added bytes are those of the file. Called once.
  bool matches();
  /// Returns the computed checksum, after matches().
  const std::string& actual() const { return actual_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::string expected_, actual_;
};

}  // namespace redline
