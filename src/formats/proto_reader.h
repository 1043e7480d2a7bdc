// A cursor over the fields of a Protocol Buffers message in untrusted bytes.
// Wire format: https://protobuf.dev/programming-guides/encoding
#pragma once

#include "formats/byte_reader.h"

namespace redline {

enum class ProtoWire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

/// One field of a message.
struct ProtoField {
  uint32_t number = 0;
  ProtoWire wire = ProtoWire::kVarint;
  uint64_t offset = 0;     ///< offset of the field's tag in the file
  uint64_t value = 0;      ///< the number in a varint or fixed field
  std::string_view bytes;  ///< the content of a kBytes field, a view into the file
  uint64_t bytes_offset = 0;

  int64_t as_int64() const { return static_cast<int64_t>(value); }
  float as_float() const { return __builtin_bit_cast(float, static_cast<uint32_t>(value)); }
};

/// Reads one message, field by field. Allocates nothing. Groups, which proto3 does not have, are refused.
class ProtoReader {
 public:
  /// `base`: file offset of text[0], for errors. `path` and `text` must outlive the reader.
  ProtoReader(const std::string& path, std::string_view text, uint64_t base = 0)
      : path_(&path), text_(text), base_(base) {}
  /// Returns a reader of the message inside a field of kind kBytes.
  ProtoReader inside(const ProtoField& field) const { return {*path_, field.bytes, field.bytes_offset}; }

  bool at_end() const { return at_ == text_.size(); }
  const std::string& path() const { return *path_; }
  uint64_t offset() const { return base_ + at_; }
  /// Reads the next field. invalid_argument: the message ends early, an unknown wire type or an invalid field number.
  Status next(ProtoField& field);
  /// Reads a number without a tag, as in a packed repeated field. invalid_argument: it ends early or has more than ten
  /// bytes.
  Status varint(uint64_t& value);

  /// Returns the error "PATH: at byte N: reason".
  template <class... A>
  Status error_at(uint64_t offset, fmt::format_string<A...> text, A&&... args) const {
    return invalid_argument("{}: at byte {}: {}", *path_, offset, fmt::format(text, std::forward<A>(args)...));
  }

 private:
  Status ends_early(std::string_view what, uint64_t bytes) const;

  const std::string* path_;
  std::string_view text_;
  uint64_t base_;
  size_t at_ = 0;
};

}  // namespace redline
