#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/descriptor.h"

namespace redline {
namespace {

Status system_error(const std::string& path, std::string_view what, int error) {
  if (error == ENOENT || error == ENOTDIR) return not_found("{}: no such file", path);
  if (error == ENOMEM) return out_of_memory("{}: {}: {}", path, what, std::strerror(error));
  return io("{}: {}: {}", path, what, std::strerror(error));
}

/// Opens a regular file and calls fstat. O_NONBLOCK: opening a pipe must not wait for its other end.
Status open_regular(const std::string& path, int& fd, struct stat& info) {
  if (path.find('\0') != std::string::npos) return invalid_argument("a path may not hold a zero byte");
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return system_error(path, "cannot open", errno);
  if (::fstat(fd, &info) != 0) return system_error(path, "cannot stat", errno);
  if (S_ISDIR(info.st_mode)) return invalid_argument("{}: is a folder, expected a file", path);
  if (!S_ISREG(info.st_mode)) return invalid_argument("{}: is not a regular file", path);
  return {};
}

enum Piece : uint8_t { kNotMade, kBeingMade, kMade };

}  // namespace

struct MappedFile::Lazy {
  Lazy(Maker how, int64_t count) : maker(std::move(how)), pieces(static_cast<size_t>(count)) {}

  Maker maker;
  std::vector<std::atomic<uint8_t>> pieces;
};

MappedFile::MappedFile() = default;

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  int fd = -1;
  struct stat info {};
  const Status opened = open_regular(path, fd, info);
  const Descriptor closer(fd);
  REDLINE_TRY(opened);

  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = path;
  file->size_ = info.st_size;
  file->device_ = info.st_dev;
  file->inode_ = info.st_ino;
  for (const uint64_t part : {uint64_t{info.st_dev}, uint64_t{info.st_ino}, static_cast<uint64_t>(info.st_size),
                              static_cast<uint64_t>(info.st_mtim.tv_sec), static_cast<uint64_t>(info.st_mtim.tv_nsec)})
    file->identity_ = (file->identity_ ^ part) * 0x9E3779B97F4A7C15ull + 1;
  if (file->size_ == 0) return file;
  void* data = ::mmap(nullptr, static_cast<size_t>(file->size_), PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) {
    file->size_ = 0;
    return system_error(path, fmt::format("cannot map {} bytes", info.st_size), errno);
  }
  file->data_ = static_cast<const uint8_t*>(data);
  return file;
}

std::shared_ptr<MappedFile> MappedFile::from_bytes(std::string path, std::string_view bytes) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = std::move(path);
  file->size_ = static_cast<int64_t>(bytes.size());
  if (bytes.empty()) return file;
  file->owned_.reset(new uint8_t[bytes.size()]);
  std::memcpy(file->owned_.get(), bytes.data(), bytes.size());
  file->data_ = file->owned_.get();
  return file;
}

Result<std::shared_ptr<MappedFile>> MappedFile::make(std::string path, int64_t bytes,
                                                     const std::function<void(uint8_t*)>& fill) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = std::move(path);
  if (bytes <= 0) return file;
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return out_of_memory("{}: no room for {} bytes", file->path_, bytes);
  file->data_ = static_cast<const uint8_t*>(data);
  file->size_ = bytes;
  fill(static_cast<uint8_t*>(data));
  ::mprotect(data, static_cast<size_t>(bytes), PROT_READ);
  return file;
}

Result<std::shared_ptr<MappedFile>> MappedFile::make_lazily(std::string path, int64_t bytes, Maker maker) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = std::move(path);
  file->identity_ = maker.identity;
  if (bytes <= 0) return file;
  // Pages count as used once they are written: reserving all of them could fail where the pieces in use have room.
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return out_of_memory("{}: no room for {} bytes", file->path_, bytes);
  file->data_ = static_cast<const uint8_t*>(data);
  file->size_ = bytes;
  const int64_t piece = std::clamp<int64_t>(maker.piece, 1, bytes);
  maker.piece = piece;
  file->lazy_ = std::make_unique<Lazy>(std::move(maker), (bytes + piece - 1) / piece);
  return file;
}

void MappedFile::make_pieces(int64_t offset, int64_t bytes) const {
  if (offset < 0 || bytes <= 0 || offset >= size_) return;
  const int64_t piece = lazy_->maker.piece, end = bytes >= size_ - offset ? size_ : offset + bytes;
  for (int64_t i = offset / piece; i * piece < end; ++i) {
    std::atomic<uint8_t>& state = lazy_->pieces[static_cast<size_t>(i)];
    uint8_t is = state.load(std::memory_order_acquire);
    while (is != kMade) {
      if (is == kNotMade && state.compare_exchange_strong(is, kBeingMade, std::memory_order_acquire)) {
        const int64_t begin = i * piece;
        lazy_->maker.fill(begin, std::min(begin + piece, size_), const_cast<uint8_t*>(data_) + begin);
        state.store(kMade, std::memory_order_release);
        state.notify_all();
        break;
      }
      if (is == kBeingMade) state.wait(kBeingMade, std::memory_order_acquire);
      is = state.load(std::memory_order_acquire);
    }
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr && owned_ == nullptr) ::munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
}

void MappedFile::release_pages(int64_t begin, int64_t end) const {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const int64_t first = (begin + page - 1) / page * page;
  // The last page is not shared with other data when the range reaches the end of the file.
  const int64_t last = end == size_ ? end : end / page * page;
  if (first < last) ::madvise(const_cast<uint8_t*>(data_) + first, static_cast<size_t>(last - first), MADV_DONTNEED);
}

void MappedFile::release_pieces(int64_t begin, int64_t end) const {
  // Taken first, so that none is made while its pages go; what another thread is making stays.
  const auto take = [&](int64_t i) {
    std::atomic<uint8_t>& state = lazy_->pieces[static_cast<size_t>(i)];
    uint8_t is = state.load(std::memory_order_acquire);
    while (is != kBeingMade)
      if (state.compare_exchange_weak(is, kBeingMade, std::memory_order_acquire)) return true;
    return false;
  };
  const int64_t piece = lazy_->maker.piece;
  for (int64_t i = begin; i < end;) {
    int64_t taken = i;
    while (taken < end && take(taken)) ++taken;
    if (taken > i) release_pages(i * piece, std::min(taken * piece, size_));
    for (; i < taken; ++i) {
      lazy_->pieces[static_cast<size_t>(i)].store(kNotMade, std::memory_order_release);
      lazy_->pieces[static_cast<size_t>(i)].notify_all();
    }
    ++i;  // the one that was not taken
  }
}

void MappedFile::release(int64_t offset, int64_t bytes) const {
  if (owned_ != nullptr || offset < 0 || bytes <= 0 || offset >= size_) return;
  const int64_t end = bytes >= size_ - offset ? size_ : offset + bytes;
  if (!lazy_) return release_pages(offset, end);
  // Whole pieces: other threads may be reading the rest of one at the edge.
  const int64_t piece = lazy_->maker.piece;
  release_pieces((offset + piece - 1) / piece, end == size_ ? (end + piece - 1) / piece : end / piece);
  if (lazy_->maker.release) lazy_->maker.release(offset, end);
}

bool MappedFile::same_file(const MappedFile& other) const {
  return this == &other || (inode_ != 0 && inode_ == other.inode_ && device_ == other.device_);
}

Result<std::string> read_text_file(const std::string& path, int64_t max_bytes) {
  int fd = -1;
  struct stat info {};
  const Status opened = open_regular(path, fd, info);
  const Descriptor closer(fd);
  REDLINE_TRY(opened);
  if (info.st_size > max_bytes)
    return invalid_argument("{}: has {} bytes, at most {} are read", path, int64_t{info.st_size}, max_bytes);
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(fd, text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(path, "cannot read", errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

}  // namespace redline
