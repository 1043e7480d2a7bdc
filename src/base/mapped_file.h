// A file mapped read-only into memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"

namespace redline {

class MappedFile {
 public:
  /// not_found: no such file. invalid_argument: a folder or device. io: anything else the system says.
  /// An empty file maps to an empty view.
  static Result<std::shared_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), static_cast<size_t>(size_)}; }
  /// Tells the system that [offset, offset + bytes) will not be read again: its pages may go. A hint.
  void release(int64_t offset, int64_t bytes) const;

 private:
  MappedFile() = default;
  std::string path_;
  const uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

/// The whole of a small text file (configs). invalid_argument when it is larger than `max_bytes`.
Result<std::string> read_text_file(const std::string& path, int64_t max_bytes = int64_t{64} << 20);

}  // namespace redline
