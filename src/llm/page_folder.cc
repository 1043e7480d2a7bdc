#include "llm/page_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/cache_folder.h"
#include "base/output_file.h"

namespace redline {
namespace {

constexpr int64_t kUnknown = -1, kBlock = 4096;
/// Part of the limit that is freed at once, so that the folder is not listed for every file.
constexpr int64_t kFreedShare = 16;
constexpr int64_t kNanoseconds = 1'000'000'000;

int64_t bytes_on_disk(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 ? int64_t{info.st_blocks} * 512 : 0;
}

/// Returns the time of the last use; 0: there is no such file.
int64_t used_ns(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 ? int64_t{info.st_mtim.tv_sec} * kNanoseconds + info.st_mtim.tv_nsec : 0;
}

int64_t now_ns() {
  struct timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * kNanoseconds + now.tv_nsec;
}

void set_used(const std::string& path, int64_t ns) {
  const struct timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                                    {.tv_sec = ns / kNanoseconds, .tv_nsec = ns % kNanoseconds}};
  ::utimensat(AT_FDCWD, path.c_str(), times, 0);
}

std::string name_of(const std::string& folder, const std::string& path) {
  const std::string file = path.substr(folder.size() + 1);
  return file.substr(0, file.find('.'));
}

}  // namespace

class PageFolder::Lock {
 public:
  explicit Lock(int file) : file_(file) {
    while (::flock(file_, LOCK_EX) != 0 && errno == EINTR) {}
  }
  ~Lock() { ::flock(file_, LOCK_UN); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int file_;
};

Result<PageFolder> PageFolder::open(std::string folder, int64_t max_bytes) {
  REDLINE_TRY(create_folder(folder));
  PageFolder result(std::move(folder), max_bytes);
  const std::string path = result.folder_ + "/usage";
  result.usage_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (result.usage_ < 0) return io("{}: cannot open: {}", path, std::strerror(errno));
  const Lock lock(result.usage_);
  make_cache_room({result.folder_, max_bytes}, 0);
  result.count();
  result.write_usage(result.bytes_);
  return result;
}

PageFolder::PageFolder(PageFolder&& other) noexcept
    : folder_(std::move(other.folder_)), max_bytes_(other.max_bytes_), bytes_(other.bytes_),
      counts_again_(other.counts_again_), usage_(std::exchange(other.usage_, -1)) {}

PageFolder::~PageFolder() {
  if (usage_ >= 0) ::close(usage_);
}

// Reads the sum of the sizes, which is stored as readable text. It is empty after a writer has crashed.
int64_t PageFolder::read_usage() const {
  char text[32] = {};
  const ssize_t got = ::pread(usage_, text, sizeof text - 1, 0);
  char* end = text;
  const int64_t bytes = got > 0 ? std::strtoll(text, &end, 10) : kUnknown;
  return end != text && *end == '\n' && bytes >= 0 ? bytes : kUnknown;
}

void PageFolder::write_usage(int64_t bytes) const {
  const std::string text = bytes == kUnknown ? "" : fmt::format("{}\n", bytes);
  // An incomplete write lacks the line break at the end, so the next reader takes it as unknown.
  if (::ftruncate(usage_, 0) != 0 || ::pwrite(usage_, text.data(), text.size(), 0) != std::ssize(text)) return;
}

void PageFolder::count() {
  bytes_ = 0;
  for (const CacheFile& file : list_cache(folder_)) bytes_ += file.bytes;
  counts_again_ = false;
}

// Pages on the path to the parent were used after it, so they are not removed either.
void PageFolder::make_room(int64_t bytes, const std::string& parent, std::vector<std::string>& evicted) {
  const std::vector<CacheFile> files = list_cache(folder_);
  bytes_ = 0;
  for (const CacheFile& file : files) bytes_ += file.bytes;
  const int64_t allowed = max_bytes_ - max_bytes_ / kFreedShare - bytes;
  for (const CacheFile& file : files) {
    std::string name = name_of(folder_, file.path);
    if (bytes_ <= allowed || name == parent) return;
    if (::unlink(file.path.c_str()) != 0) continue;
    bytes_ -= file.bytes;
    evicted.push_back(std::move(name));
  }
}

Result<PageFolder::Added> PageFolder::add(const std::string& name, const std::string& parent,
                                          std::span<const uint8_t> contents) {
  const std::string path = cache_path(folder_, name);
  const int64_t bytes = (std::ssize(contents) + kBlock - 1) / kBlock * kBlock;
  Added added;
  if (bytes > max_bytes_) return added;
  const Lock lock(usage_);
  bytes_ = read_usage();
  if (bytes_ == kUnknown || counts_again_) count();
  if (::access(path.c_str(), F_OK) == 0) {  // written by another engine of the same model
    added.is_there = true;
    write_usage(bytes_);
    return added;
  }
  const int64_t parent_ns = parent.empty() ? now_ns() + 1 : used_ns(cache_path(folder_, parent));
  if (parent_ns == 0) return added;  // another engine has removed it
  write_usage(kUnknown);
  if (bytes_ + bytes > max_bytes_) make_room(bytes, parent, added.evicted);
  Status status;
  if (bytes_ + bytes <= max_bytes_) {
    status = [&]() -> Status {
      REDLINE_ASSIGN(CacheWriter writer, CacheWriter::create(folder_, name));
      REDLINE_TRY(writer.write(contents.data(), std::ssize(contents), 0));
      return writer.commit(false);
    }();
    added.is_there = status.ok();
    if (status.ok()) {
      bytes_ += bytes_on_disk(path);
      set_used(path, parent_ns - 1);
    }
  }
  write_usage(bytes_);
  REDLINE_TRY(status);
  return added;
}

void PageFolder::use(std::span<const std::string> names) {
  int64_t time = now_ns();
  for (const std::string& name : names) set_used(cache_path(folder_, name), time--);
}

std::vector<std::string> PageFolder::names() const {
  std::vector<std::string> names;
  for (const CacheFile& file : list_cache(folder_)) names.push_back(name_of(folder_, file.path));
  return names;
}

}  // namespace redline
