// A bounds-checked cursor over untrusted bytes; errors state file, offset and reason.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"

namespace redline {

/// Formats a name from a file for messages: quoted, control bytes escaped, long names truncated.
std::string in_quotes(std::string_view name, size_t max_length = 64);

/// Guesses what a file with an unexpected beginning is, for the end of an error message: "; it looks like a zip archive
/// ...", or "" when unknown. `file_bytes`: the size of the whole file.
std::string looks_like(std::string_view beginning, int64_t file_bytes);

class ByteReader {
 public:
  /// `path` and the memory of `text` must outlive the reader.
  ByteReader(const std::string& path, std::string_view text) : path_(&path), text_(text) {}

  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return text_.size() - offset_; }
  uint64_t size() const { return text_.size(); }
  const std::string& path() const { return *path_; }
  std::string_view since(uint64_t offset) const { return text_.substr(offset, offset_ - offset); }

  /// Reads a little-endian number; `what` names it in the error ("tensor count").
  template <class T>
  Status read(T& value, std::string_view what) {
    if (remaining() < sizeof(T)) return ends_early(sizeof(T), what);
    std::memcpy(&value, text_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return {};
  }
  /// Returns `bytes` bytes as a view into the file.
  Status take(uint64_t bytes, std::string_view& view, std::string_view what) {
    if (remaining() < bytes) return ends_early(bytes, what);
    view = text_.substr(offset_, bytes);
    offset_ += bytes;
    return {};
  }
  /// Sets what is being read, for error messages: set_place("tensor", "blk.0.attn_q.weight"). `name` must be a view
  /// into the file.
  void set_place(std::string_view kind = {}, std::string_view name = {}) { place_kind_ = kind, place_name_ = name; }
  /// Returns the error "PATH: at byte N: tensor "blk.0.attn_q.weight": reason".
  template <class... A>
  Status error_at(uint64_t offset, fmt::format_string<A...> text, A&&... args) const {
    const std::string place = place_kind_.empty() ? "" : fmt::format("{} {}: ", place_kind_, in_quotes(place_name_));
    return invalid_argument("{}: at byte {}: {}{}", *path_, offset, place, fmt::format(text, std::forward<A>(args)...));
  }

 private:
  Status ends_early(uint64_t bytes, std::string_view what) const {
    return error_at(offset_, "incomplete: the file ends early: {} needs {} bytes, {} are left", what, bytes,
                    remaining());
  }

  const std::string* path_;
  std::string_view text_, place_kind_, place_name_;
  uint64_t offset_ = 0;
};

/// Bounds the memory for lists declared by a file to the file size plus a constant, so that total memory with the
/// mapping stays below twice the file size. Valid files use a small part of it.
class ListBudget {
 public:
  static constexpr uint64_t kConstant = uint64_t{1} << 20;
  explicit ListBudget(uint64_t file_bytes) : left_(file_bytes + kConstant) {}
  /// Takes memory from the budget; returns false when it is exceeded.
  bool spend(uint64_t count, uint64_t bytes_each) {
    if (bytes_each != 0 && count > left_ / bytes_each) return false;
    left_ -= count * bytes_each;
    return true;
  }

 private:
  uint64_t left_;
};

}  // namespace redline
