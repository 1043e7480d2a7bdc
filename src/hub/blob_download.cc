#include "hub/blob_download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/descriptor.h"
#include "base/output_file.h"
#include "hub/checksum.h"

namespace redline {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxTries = 6;     ///< number of transfers in a row that bring less than kMinProgress bytes
constexpr int kTriesOfSlow = 3;  ///< number of tries that a transfer counts for if it was too slow
constexpr int64_t kMinProgress = int64_t{16} << 10;

std::string partial_path(const std::string& blob) { return blob + ".incomplete"; }

int64_t size_of(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : -1;
}

/// Returns the size in bytes of the whole file according to the server; -1: not reported.
int64_t total_of(const HttpAnswer& answer) {
  std::string text = answer.header("content-length");
  if (answer.status == 206) {  // "bytes 100-199/200"
    const std::string range = answer.header("content-range");
    text = range.substr(range.find('/') == std::string::npos ? range.size() : range.find('/') + 1);
  }
  // The length of a compressed transfer is not the size of the file.
  if (!answer.header("content-encoding").empty()) return -1;
  int64_t bytes = -1;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() ? bytes : -1;
}

/// Returns the offset in the file at which the body of a 206 response begins; -1: unknown.
int64_t begin_of(const HttpAnswer& answer) {
  const std::string range = answer.header("content-range");
  constexpr std::string_view kUnit = "bytes ";
  int64_t begin = -1;
  if (range.starts_with(kUnit)) std::from_chars(range.data() + kUnit.size(), range.data() + range.size(), begin);
  return begin;
}

/// The unfinished file of a download, and the checksum of its contents.
class Partial {
 public:
  Partial(const BlobDownload& download, std::string path)
      : download_(download), path_(std::move(path)),
        file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)) {}

  /// Opens the file, and keeps the bytes that an earlier transfer has left.
  Status open() {
    if (file_.get() < 0) return io("{}: cannot be created: {}", path_, std::strerror(errno));
    checksum_.emplace(download_.file.etag, download_.file.bytes);
    size_ = std::max<int64_t>(size_of(path_), 0);
    if (size_ > download_.file.bytes) return restart();
    REDLINE_TRY(checksum_->add_file(path_, size_));
    kept_ = size_;
    return seek();
  }

  Status restart() {
    if (::ftruncate(file_.get(), 0) != 0) return io("{}: cannot be truncated: {}", path_, std::strerror(errno));
    download_.on_bytes(-received_);
    checksum_.emplace(download_.file.etag, download_.file.bytes);
    size_ = kept_ = received_ = 0;
    return seek();
  }

  Status write(std::string_view bytes) {
    if (std::ssize(bytes) > download_.file.bytes - size_)
      return io("{}: more bytes arrive than the {} of the file", download_.file.path, download_.file.bytes);
    checksum_->add(bytes);
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0)
        return io("{}: writing failed: {}; what was fetched stays for the next pull", path_, std::strerror(errno));
      size_ += written;
      received_ += written;
      download_.on_bytes(written);
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return {};
  }

  bool is_whole() const { return size_ == download_.file.bytes; }
  /// Returns the number of bytes in the file; kept() returns the number of those that came from an earlier process.
  int64_t size() const { return size_; }
  int64_t kept() const { return kept_; }
  FileChecksum& checksum() { return *checksum_; }
  const std::string& path() const { return path_; }

 private:
  Status seek() {
    if (::lseek(file_.get(), size_, SEEK_SET) < 0) return io("{}: {}", path_, std::strerror(errno));
    return {};
  }

  const BlobDownload& download_;
  const std::string path_;
  const Descriptor file_;
  std::optional<FileChecksum> checksum_;
  int64_t size_ = 0, kept_ = 0, received_ = 0;
};

/// Makes one transfer, which begins at the end of the partial file.
Status transfer(const BlobDownload& d, HubHttp& http, Partial& partial, HttpAnswer& answer) {
  Status problem;
  bool has_begun = false;
  HttpRequest request;
  request.url =
      fmt::format("{}/{}/resolve/{}/{}", d.settings.endpoint, d.repository, d.commit, url_encoded(d.file.path, true));
  request.offset = partial.size();
  request.on_body = [&](const HttpAnswer& head, std::string_view bytes) {
    if (!has_begun) {
      has_begun = true;
      const int64_t total = total_of(head);
      if (total >= 0 && total != d.file.bytes)
        problem = io("{}: the server has {} bytes of it; according to {} it has {}", d.file.path, total,
                     d.settings.endpoint, d.file.bytes);
      // A server without range support sends the whole file.
      if (head.status == 200 && request.offset > 0 && problem.ok()) problem = partial.restart();
      if (head.status == 206 && begin_of(head) != request.offset && problem.ok())
        problem = io("{}: the server sends bytes from {} on; expected from {} on", d.file.path, begin_of(head),
                     request.offset);
    }
    if (problem.ok()) problem = partial.write(bytes);
    return problem.ok();
  };
  answer = http.send(request);
  return problem;
}

Status download_whole(const BlobDownload& d, HubHttp& http, Partial& partial) {
  constexpr long kBadRange = 416;
  const std::string what = fmt::format("hf:{}:{}", d.repository, d.file.path);
  int tries = 0;
  while (!partial.is_whole()) {
    const int64_t before = partial.size();
    HttpAnswer answer;
    REDLINE_TRY(transfer(d, http, partial, answer));
    if (answer.is_cancelled) return hub_error(answer, d.settings, d.repository, what);
    if (partial.is_whole()) break;
    tries = partial.size() - before >= kMinProgress ? 1 : tries + (answer.is_slow ? kTriesOfSlow : 1);
    if (answer.status == kBadRange && before > 0) {
      REDLINE_TRY(partial.restart());
      continue;
    }
    const bool is_short = answer.failure.empty() && (answer.status == 200 || answer.status == 206);
    if ((!answer.is_worth_another_try && !is_short) || tries >= kMaxTries) {
      if (is_short) return io("{}: {} bytes arrived; the file has {}", what, partial.size(), d.file.bytes);
      return hub_error(answer, d.settings, d.repository, what);
    }
    if (answer.retry_after_s > 0)
      d.on_notice(fmt::format("{} asks to wait for {} s", d.settings.endpoint, answer.retry_after_s));
    if (!http.wait(tries, answer.retry_after_s)) {
      answer.is_cancelled = true;
      return hub_error(answer, d.settings, d.repository, what);
    }
  }
  return {};
}

}  // namespace

int64_t bytes_in_cache(const HubCache& cache, const std::string& repository, const HubFile& file) {
  const std::string blob = cache.blob_path(repository, file.etag);
  if (size_of(blob) == file.bytes) return file.bytes;
  return std::clamp<int64_t>(size_of(partial_path(blob)), 0, file.bytes);
}

Status download_blob(const BlobDownload& d, HubHttp& http) {
  const std::string blob = d.cache.blob_path(d.repository, d.file.etag);
  if (size_of(blob) == d.file.bytes) return {};
  bool has_noted = false;
  REDLINE_ASSIGN(const FileLock lock, FileLock::acquire(d.cache.lock_path(d.repository, d.file.etag), [&] {
                   if (!has_noted)
                     d.on_notice(fmt::format("waiting for another process, which fetches {}", d.file.path));
                   has_noted = true;
                   return !http.is_cancelled();
                 }));
  if (size_of(blob) == d.file.bytes) return {};
  REDLINE_TRY(create_folder(fs::path(blob).parent_path().string()));
  Partial partial(d, partial_path(blob));
  REDLINE_TRY(partial.open());
  for (;;) {
    const int64_t kept = partial.kept();
    REDLINE_TRY(download_whole(d, http, partial));
    if (partial.checksum().matches()) break;
    const std::string actual = partial.checksum().actual();
    REDLINE_TRY(partial.restart());
    if (kept > 0) {
      d.on_notice(
          fmt::format("the part of {} from an earlier pull is damaged; the file is fetched again", d.file.path));
      continue;
    }
    std::error_code error;
    fs::remove(partial.path(), error);
    return io("hf:{}:{}: its checksum is {}, expected {} according to {}; the file was discarded", d.repository,
              d.file.path, actual, d.settings.endpoint, d.file.etag);
  }
  std::error_code error;
  fs::rename(partial.path(), blob, error);
  if (error) return io("{}: cannot be created: {}", blob, error.message());
  return {};
}

}  // namespace redline
