#include "base/output_file.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/output_path.h"

namespace redline {
namespace {

// A signal handler may neither lock nor allocate. Files beyond this number are left to their destructors.
constexpr int kMaxUnfinished = 16;
struct Unfinished {
  std::atomic<bool> is_taken = false, is_valid = false;
  char path[PATH_MAX] = "";
};
Unfinished g_unfinished[kMaxUnfinished];

int add_unfinished(const std::string& path) {
  if (path.size() >= PATH_MAX) return -1;
  for (int i = 0; i < kMaxUnfinished; ++i) {
    if (g_unfinished[i].is_taken.exchange(true)) continue;
    std::memcpy(g_unfinished[i].path, path.c_str(), path.size() + 1);
    g_unfinished[i].is_valid = true;
    return i;
  }
  return -1;
}

void drop_unfinished(int place) {
  if (place < 0) return;
  g_unfinished[place].is_valid = false;
  g_unfinished[place].is_taken = false;
}

}  // namespace

void remove_unfinished_files() {
  for (const Unfinished& file : g_unfinished)
    if (file.is_valid) ::unlink(file.path);
}

Result<OutputFile> OutputFile::create(const std::string& path) {
  OutputFile output;
  REDLINE_ASSIGN(output.path_, output_path(path));
  output.temporary_ = fmt::format("{}.{}.tmp", output.path_, getpid());
  output.file_ = std::fopen(output.temporary_.c_str(), "wbx");
  if (!output.file_ && errno == EEXIST) {  // left by a killed process with this id
    ::unlink(output.temporary_.c_str());
    output.file_ = std::fopen(output.temporary_.c_str(), "wbx");
  }
  if (!output.file_) return io("{}: cannot be written: {}", path, std::strerror(errno));
  output.unfinished_ = add_unfinished(output.temporary_);
  return output;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::move(other.temporary_)),
      file_(std::exchange(other.file_, nullptr)), unfinished_(std::exchange(other.unfinished_, -1)) {}

OutputFile::~OutputFile() {
  if (!file_) return;
  std::fclose(file_);
  std::remove(temporary_.c_str());
  drop_unfinished(unfinished_);
}

Status OutputFile::failed() const { return io("{}: writing failed: {}", path_, std::strerror(errno)); }

Status OutputFile::write(std::string_view bytes) {
  if (bytes.empty()) return {};  // its data() may be null
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) return failed();
  return {};
}

Status OutputFile::close() {
  std::FILE* file = std::exchange(file_, nullptr);
  Status status;
  if (std::fclose(file) != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    status = failed();
    std::remove(temporary_.c_str());
  }
  drop_unfinished(std::exchange(unfinished_, -1));
  return status;
}

Status write_file(const std::string& path, std::string_view bytes) {
  REDLINE_ASSIGN(OutputFile file, OutputFile::create(path));
  REDLINE_TRY(file.write(bytes));
  return file.close();
}

Status prepare_output(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty() && !std::filesystem::exists(folder, error)) REDLINE_TRY(create_folder(folder.string()));
  REDLINE_TRY(OutputFile::create(path));
  return {};
}

Status create_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return io("{}: the folder cannot be created: {}", path, error.message());
  if (::access(path.c_str(), W_OK | X_OK) != 0) return io("{}: cannot be written: {}", path, std::strerror(errno));
  return {};
}

}  // namespace redline
