// A file that appears under its name only when it is whole.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "base/error.h"

namespace redline {

/// Written under a temporary name beside the final one and renamed by close(): never half a file.
class OutputFile {
 public:
  /// invalid_argument: `path` is a folder or device. io: the file cannot be made.
  static Result<OutputFile> create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  /// Removes what was written unless close() succeeded.
  ~OutputFile();

  Status write(std::string_view bytes);
  Status close();
  /// The final name, links followed.
  const std::string& path() const { return path_; }

 private:
  OutputFile() = default;
  Status failed() const;
  std::string path_, temporary_;
  std::FILE* file_ = nullptr;
};

}  // namespace redline
