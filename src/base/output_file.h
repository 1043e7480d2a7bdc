// A file that appears under its name only when complete.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "base/error.h"

namespace redline {

/// A file that is written under a temporary name next to the final one and renamed by close(), so that no partial file
/// appears.
class OutputFile {
 public:
  /// Creates the temporary file. invalid_argument: `path` is a folder or device. io: the file cannot be created.
  static Result<OutputFile> create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  /// Removes the file unless close() succeeded.
  ~OutputFile();

  Status write(std::string_view bytes);
  Status close();
  /// Returns the final name, with links resolved.
  const std::string& path() const { return path_; }

 private:
  OutputFile() = default;
  Status failed() const;
  std::string path_, temporary_;
  std::FILE* file_ = nullptr;
  int unfinished_ = -1;  ///< index in the list that remove_unfinished_files reads
};

/// Writes a whole file. Errors as OutputFile.
Status write_file(const std::string& path, std::string_view bytes);

/// Checks that a file can be written later, and creates its folder if it is missing. Called before work whose result
/// would otherwise be lost. Errors as OutputFile::create and create_folder.
Status prepare_output(const std::string& path);

/// Creates a folder and its missing parents. io: the folder cannot be created, or is not writable.
Status create_folder(const std::string& path);

/// Removes the temporary files of all instances. For the handler of a signal that ends the process: async-signal-safe.
void remove_unfinished_files();

}  // namespace redline
