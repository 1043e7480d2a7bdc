// A file mapped read-only into memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"

namespace redline {

/// A read-only view of a file, mapped or in private memory.
class MappedFile {
 public:
  /// Maps a file. An empty file maps to an empty view. not_found: no such file. invalid_argument: a folder or device.
  /// io: any other system error.
  static Result<std::shared_ptr<MappedFile>> open(const std::string& path);
  /// Copies a buffer, under a name for errors; for tests and fuzzing. The copy has exactly the size of the bytes, so
  /// that an address sanitizer detects reads past the end.
  static std::shared_ptr<MappedFile> from_bytes(std::string path, std::string_view bytes);
  /// Allocates private memory that `fill` initializes, under a name for errors. release() discards its pages
  /// permanently. out_of_memory: `bytes` cannot be allocated.
  static Result<std::shared_ptr<MappedFile>> make(std::string path, int64_t bytes,
                                                  const std::function<void(uint8_t*)>& fill);
  /// Functions with which make_lazily() computes the bytes of a file.
  struct Maker {
    int64_t piece = 0;  ///< bytes that one call of `fill` computes
    /// Writes the piece [begin, end) to `out`. Called from several threads for different pieces.
    std::function<void(int64_t begin, int64_t end, uint8_t* out)> fill;
    /// States that `fill` will not be called for [begin, end) again soon, so its inputs need not stay in memory.
    std::function<void(int64_t begin, int64_t end)> release;
    uint64_t identity = 0;  ///< identity() of the file
  };
  /// Allocates private memory whose pieces are computed when need() first requests them, for files that are read in
  /// another format than stored. release() discards pieces, and the next need() computes them again. Errors as make().
  static Result<std::shared_ptr<MappedFile>> make_lazily(std::string path, int64_t bytes, Maker maker);
  /// Makes [offset, offset + bytes) readable until it is released. Does nothing unless the file is from make_lazily.
  /// Threads that need the same piece wait for the first of them.
  void need(int64_t offset, int64_t bytes) const {
    if (lazy_) make_pieces(offset, bytes);
  }
  /// Returns true if released bytes can be computed again from files; those of make() are lost.
  bool is_made_lazily() const { return lazy_ != nullptr; }
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), static_cast<size_t>(size_)}; }
  /// Hints that [offset, offset + bytes) will not be read again soon, so its whole pages may be dropped.
  void release(int64_t offset, int64_t bytes) const;
  /// Returns a hash of device, inode, size and modification time. It changes when the content changes, and when another
  /// file gets the name. 0 if the file is not on disk.
  uint64_t identity() const { return identity_; }
  /// Returns true if both are the same file on disk, whatever their names (links).
  bool same_file(const MappedFile& other) const;

 private:
  struct Lazy;
  MappedFile();
  void make_pieces(int64_t offset, int64_t bytes) const;
  /// Releases the whole pages in [begin, end).
  void release_pages(int64_t begin, int64_t end) const;
  /// Releases pieces begin to end - 1.
  void release_pieces(int64_t begin, int64_t end) const;

  std::string path_;
  const uint8_t* data_ = nullptr;
  int64_t size_ = 0;
  uint64_t device_ = 0, inode_ = 0;  ///< 0, 0: not on disk
  uint64_t identity_ = 0;
  std::unique_ptr<uint8_t[]> owned_;  ///< memory of from_bytes
  std::unique_ptr<Lazy> lazy_;        ///< pieces of make_lazily
};

/// Reads a whole small text file (configs). invalid_argument when it is larger than `max_bytes`.
Result<std::string> read_text_file(const std::string& path, int64_t max_bytes = int64_t{64} << 20);

}  // namespace redline
