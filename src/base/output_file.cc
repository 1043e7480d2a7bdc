#include "base/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/output_path.h"

namespace redline {

Result<OutputFile> OutputFile::create(const std::string& path) {
  OutputFile output;
  REDLINE_ASSIGN(output.path_, output_path(path));
  output.temporary_ = fmt::format("{}.{}.tmp", output.path_, getpid());
  output.file_ = std::fopen(output.temporary_.c_str(), "wbx");
  if (!output.file_) return io("{}: cannot be written: {}", path, std::strerror(errno));
  return output;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::move(other.temporary_)),
      file_(std::exchange(other.file_, nullptr)) {}

OutputFile::~OutputFile() {
  if (!file_) return;
  std::fclose(file_);
  std::remove(temporary_.c_str());
}

Status OutputFile::failed() const { return io("{}: writing failed: {}", path_, std::strerror(errno)); }

Status OutputFile::write(std::string_view bytes) {
  if (bytes.empty()) return {};  // its data() may be null
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) return failed();
  return {};
}

Status OutputFile::close() {
  std::FILE* file = std::exchange(file_, nullptr);
  if (std::fclose(file) == 0 && std::rename(temporary_.c_str(), path_.c_str()) == 0) return {};
  Status status = failed();
  std::remove(temporary_.c_str());
  return status;
}

Status write_file(const std::string& path, std::string_view bytes) {
  REDLINE_ASSIGN(OutputFile file, OutputFile::create(path));
  REDLINE_TRY(file.write(bytes));
  return file.close();
}

Status create_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return io("{}: the folder cannot be created: {}", path, error.message());
  if (::access(path.c_str(), W_OK | X_OK) != 0) return io("{}: cannot be written: {}", path, std::strerror(errno));
  return {};
}

}  // namespace redline
