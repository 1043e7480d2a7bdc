#include "base/output_path.h"

#include <filesystem>

namespace redline {

Result<std::string> output_path(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return invalid_argument("the name of the file to write is empty");
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return path;
  if (!fs::is_regular_file(status))
    return invalid_argument("{}: is {}, expected the name of a file to write", path,
                            fs::is_directory(status) ? "a folder" : "not a regular file");
  const fs::path file = fs::canonical(path, error);
  // An open but unlinked file (/proc/self/fd/1) does not resolve.
  if (error) return invalid_argument("{}: cannot be replaced: {}", path, error.message());
  return file.string();
}

}  // namespace redline
