// A request's body while it is being read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace redline::server {

/// Holds a body in parts that do not move while more is read: the thread that reads for all connections must not copy
/// megabytes of one of them.
class BodyParts {
 public:
  /// Minimum and maximum size of the parts of a body whose length is unknown.
  static constexpr size_t kMinPartBytes = 64 << 10, kMaxPartBytes = 1 << 20;
  /// Maximum size of the room for one read.
  static constexpr size_t kReadBytes = 64 << 10;

  size_t size() const { return size_; }
  /// Returns the bytes of memory that the next room() adds. `length`: of the whole body; nullopt: unknown.
  size_t next_part_bytes(std::optional<uint64_t> length) const {
    if (!parts_.empty() && used_ < parts_.back().size()) return 0;
    const size_t wanted = std::clamp(size_, kMinPartBytes, kMaxPartBytes);
    // If the whole body is there, one more byte of room is enough to see its end.
    return length ? std::min<uint64_t>(wanted, *length > size_ ? *length - size_ : 1) : wanted;
  }
  /// Returns memory for the next bytes.
  std::span<char> room(std::optional<uint64_t> length) {
    if (const size_t bytes = next_part_bytes(length); bytes > 0) {
      parts_.emplace_back(bytes, '\0');
      used_ = 0;
    }
    std::string& part = parts_.back();
    return {part.data() + used_, std::min(part.size() - used_, kReadBytes)};
  }
  /// Adds the first `bytes` of room(), which have been read.
  void add(size_t bytes) {
    used_ += bytes;
    size_ += bytes;
  }
  /// Returns the body and forgets it. Copies all of it, unless it is one part.
  std::string take() {
    std::string body;
    if (!parts_.empty()) parts_.back().resize(used_);
    if (parts_.size() == 1) {
      body = std::move(parts_[0]);
    } else {
      body.reserve(size_);
      for (std::string& part : parts_) {
        body += part;
        std::string().swap(part);  // frees each part before the next is copied
      }
    }
    clear();
    return body;
  }
  void clear() {
    parts_.clear();
    used_ = size_ = 0;
  }

 private:
  std::vector<std::string> parts_;  ///< all full but the last one
  size_t used_ = 0;                 ///< bytes of the last part
  size_t size_ = 0;
};

}  // namespace redline::server
