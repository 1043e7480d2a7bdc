// A file that appears under its name only when complete.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "base/error.h"

namespace redline {

/// Written under a temporary name next to the final one and renamed by close(): never a partial file.
class OutputFile {
 public:
  /// invalid_argument: `path` is a folder or device. io: the file cannot be created.
  static Result<OutputFile> create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  /// Removes the file unless close() succeeded.
  ~OutputFile();

  Status write(std::string_view bytes);
  Status close();
  /// The final name, links resolved.
  const std::string& path() const { return path_; }

 private:
  OutputFile() = default;
  Status failed() const;
  std::string path_, temporary_;
  std::FILE* file_ = nullptr;
  int unfinished_ = -1;  ///< place in the list that remove_unfinished_files reads
};

/// Writes a whole file. Errors as OutputFile's.
Status write_file(const std::string& path, std::string_view bytes);

/// Whether a file can be written later: its folder is created if it is missing. Called before work whose result would
/// be lost. Errors as OutputFile::create and create_folder.
Status prepare_output(const std::string& path);

/// Creates a folder and those around it, if they are missing. io: it cannot be created, or is not writable.
Status create_folder(const std::string& path);

/// Removes the temporary files of all instances. For the handler of a signal that ends the process: async-signal-safe.
void remove_unfinished_files();

}  // namespace redline
