#include "formats/proto_reader.h"

namespace redline {

Status ProtoReader::ends_early(std::string_view what, uint64_t bytes) const {
  return error_at(offset(), "incomplete: a message ends early: {} needs {} bytes, {} are left", what, bytes,
                  text_.size() - at_);
}

Status ProtoReader::varint(uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (at_ == text_.size()) return ends_early("a number", 1);
    const auto byte = static_cast<uint8_t>(text_[at_++]);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return {};
  }
  return error_at(offset(), "a number of more than ten bytes");
}

Status ProtoReader::next(ProtoField& field) {
  constexpr uint64_t kMaxNumber = (uint64_t{1} << 29) - 1;
  field.offset = offset();
  uint64_t tag = 0;
  REDLINE_TRY(varint(tag));
  if (tag >> 3 == 0 || tag >> 3 > kMaxNumber)
    return error_at(field.offset, "{} is not a field number; this is not a protobuf message", tag >> 3);
  field.number = static_cast<uint32_t>(tag >> 3);
  const auto fixed = [&](size_t bytes) -> Status {
    if (text_.size() - at_ < bytes) return ends_early(fmt::format("field {}", field.number), bytes);
    field.value = 0;
    std::memcpy(&field.value, text_.data() + at_, bytes);
    at_ += bytes;
    return {};
  };
  switch (tag & 7) {
    case 0: field.wire = ProtoWire::kVarint; return varint(field.value);
    case 1: field.wire = ProtoWire::kFixed64; return fixed(sizeof(uint64_t));
    case 5: field.wire = ProtoWire::kFixed32; return fixed(sizeof(uint32_t));
    case 2: {
      field.wire = ProtoWire::kBytes;
      uint64_t bytes = 0;
      REDLINE_TRY(varint(bytes));
      if (bytes > text_.size() - at_) return ends_early(fmt::format("field {}", field.number), bytes);
      field.bytes_offset = offset();
      field.bytes = text_.substr(at_, static_cast<size_t>(bytes));
      at_ += static_cast<size_t>(bytes);
      return {};
    }
    default: return error_at(field.offset, "field {} has wire type {}, which is not read", field.number, tag & 7);
  }
}

}  // namespace redline
