#include "base/cache_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/environment.h"
#include "base/settings.h"

namespace redline {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kSuffix = ".redline-cache", kUnfinished = ".unfinished";

constexpr int64_t kNanoseconds = 1'000'000'000;
int64_t modified_ns(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * kNanoseconds + info.st_mtim.tv_nsec;
}

template <class Each>
void for_each_file(const std::string& folder, std::string_view suffix, Each&& each) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().native().ends_with(suffix)) each(at->path().native());
}

/// Removes the unfinished files of writers that no longer run. A live writer holds a lock on its file.
void remove_abandoned(const std::string& folder) {
  for_each_file(folder, kUnfinished, [](const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
    ::close(fd);
  });
}

}  // namespace

Result<CacheSettings> read_cache_settings() {
  REDLINE_ASSIGN(const Settings settings, read_settings());
  CacheSettings cache;
  cache.max_bytes = static_cast<int64_t>(settings.cache_gb * 1e9);
  if (cache.max_bytes <= 0) return cache;
  cache.folder = settings.cache_dir;
  if (!cache.folder.empty()) return cache;
  if (const std::string base = environment_folder("XDG_CACHE_HOME"); !base.empty()) cache.folder = base + "/redline";
  else if (const std::string home = environment_folder("HOME"); !home.empty()) cache.folder = home + "/.cache/redline";
  return cache;
}

std::string cache_path(const std::string& folder, const std::string& name) {
  return fmt::format("{}/{}{}", folder, name, kSuffix);
}

std::vector<CacheFile> list_cache(const std::string& folder) {
  std::vector<CacheFile> files;
  for_each_file(folder, kSuffix, [&](const std::string& path) {
    struct stat info;
    if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
    files.push_back({path, int64_t{info.st_blocks} * 512, modified_ns(info)});
  });
  std::sort(files.begin(), files.end(), [](const CacheFile& a, const CacheFile& b) {
    return a.used_ns != b.used_ns ? a.used_ns < b.used_ns : a.path < b.path;
  });
  return files;
}

void mark_used(const std::string& folder, int fd) {
  const std::vector<CacheFile> files = list_cache(folder);
  const int64_t newest = files.empty() ? 0 : files.back().used_ns;
  // The kernel stamps files with the time of its last tick, milliseconds ago, so two files may get the same time; some
  // file systems store whole seconds. Therefore set the time explicitly and read it back.
  for (const int64_t step : {int64_t{1}, int64_t{1'000}, int64_t{2'000'000'000}}) {
    struct timespec now;
    ::clock_gettime(CLOCK_REALTIME, &now);
    const int64_t time = std::max(int64_t{now.tv_sec} * kNanoseconds + now.tv_nsec, newest + step);
    const struct timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                                      {.tv_sec = time / kNanoseconds, .tv_nsec = time % kNanoseconds}};
    struct stat info;
    if (::futimens(fd, times) != 0 || ::fstat(fd, &info) != 0 || modified_ns(info) > newest) return;
  }
}

bool make_cache_room(const CacheSettings& settings, int64_t bytes) {
  remove_abandoned(settings.folder);
  if (bytes > settings.max_bytes) return false;
  std::vector<CacheFile> files = list_cache(settings.folder);
  int64_t taken = bytes;
  for (const CacheFile& file : files) taken += file.bytes;
  for (const CacheFile& file : files) {
    if (taken <= settings.max_bytes) break;
    if (::unlink(file.path.c_str()) == 0) taken -= file.bytes;
  }
  struct statvfs disk;
  if (taken > settings.max_bytes || ::statvfs(settings.folder.c_str(), &disk) != 0) return false;
  return static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize) >= 2.0 * static_cast<double>(bytes);
}

int64_t clear_cache(const std::string& folder) {
  remove_abandoned(folder);
  int64_t freed = 0;
  for (const CacheFile& file : list_cache(folder))
    if (::unlink(file.path.c_str()) == 0) freed += file.bytes;
  return freed;
}

Result<CacheWriter> CacheWriter::create(const std::string& folder, const std::string& name) {
  std::error_code error;
  fs::create_directories(folder, error);
  CacheWriter writer(folder, name);
  static std::atomic<unsigned> count{0};
  // Another process may remove the file as abandoned between its creation and its lock: then try again.
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    writer.temporary_ = fmt::format("{}/{}.{}.{}{}", folder, name, ::getpid(), ++count, kUnfinished);
    writer.fd_ = ::open(writer.temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (writer.fd_ < 0 && errno == EEXIST) continue;  // left by a dead process with our pid
    if (writer.fd_ < 0) return io("{}: cannot make the file: {}", writer.temporary_, std::strerror(errno));
    struct stat info;
    if (::flock(writer.fd_, LOCK_EX | LOCK_NB) == 0 && ::fstat(writer.fd_, &info) == 0 && info.st_nlink > 0)
      return writer;
    ::unlink(writer.temporary_.c_str());
    ::close(std::exchange(writer.fd_, -1));
  }
  return io("{}: cannot lock a new file", folder);
}

CacheWriter::CacheWriter(CacheWriter&& other) noexcept
    : folder_(std::move(other.folder_)), name_(std::move(other.name_)), temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)) {}

CacheWriter::~CacheWriter() {
  if (fd_ < 0) return;
  ::unlink(temporary_.c_str());
  ::close(fd_);
}

Status CacheWriter::write(const void* data, int64_t bytes, int64_t offset) {
  const auto* from = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t got = ::pwrite(fd_, from, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return io("{}: cannot write: {}", temporary_, std::strerror(got < 0 ? errno : ENOSPC));
    from += got;
    offset += got;
    bytes -= got;
  }
  return {};
}

void CacheWriter::flush(int64_t offset, int64_t bytes) {
  ::sync_file_range(fd_, offset, bytes,
                    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
}

Status CacheWriter::commit(bool marks_used) {
  if (marks_used) mark_used(folder_, fd_);
  if (::fsync(fd_) != 0) return io("{}: cannot write: {}", temporary_, std::strerror(errno));
  if (::rename(temporary_.c_str(), cache_path(folder_, name_).c_str()) != 0)
    return io("{}: cannot rename: {}", temporary_, std::strerror(errno));
  ::close(std::exchange(fd_, -1));
  return {};
}

}  // namespace redline
