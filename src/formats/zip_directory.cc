#include "formats/zip_directory.h"

#include <algorithm>

#include "formats/byte_reader.h"

namespace redline {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kEntry = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kLocator64 = 0x07064b50;
constexpr uint64_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr uint64_t kMaxComment = 65535;
constexpr uint32_t kElsewhere = 0xffffffffu;  ///< a 32-bit field whose value is in the zip64 record

class ZipReader {
 public:
  explicit ZipReader(const MappedFile& file) : reader_(file.path(), file.text()), text_(file.text()) {}

  Result<std::vector<ZipMember>> read() {
    uint64_t entries = 0, bytes = 0, at = 0;
    REDLINE_TRY(find_directory(entries, bytes, at));
    if (!fits(at, bytes))
      return reader_.error_at(at, "the archive's directory of {} bytes extends beyond the end", bytes);
    if (entries > bytes / kEntryBytes)
      return reader_.error_at(at, "the archive's directory of {} bytes cannot hold {} entries", bytes, entries);
    std::vector<ZipMember> members;
    members.reserve(entries);
    const uint64_t end = at + bytes;
    for (; entries > 0; --entries) {
      if (end - at < kEntryBytes || number<uint32_t>(at) != kEntry)
        return reader_.error_at(at, "an entry of the archive's directory is missing");
      const uint64_t name_bytes = number<uint16_t>(at + 28), extra_bytes = number<uint16_t>(at + 30);
      const uint64_t whole = kEntryBytes + name_bytes + extra_bytes + number<uint16_t>(at + 32);
      if (whole > end - at) return reader_.error_at(at, "an entry of the archive's directory runs past its end");
      ZipMember member;
      REDLINE_TRY(read_entry(at, member));
      members.push_back(member);
      at += whole;
    }
    return members;
  }

 private:
  bool fits(uint64_t at, uint64_t bytes) const { return at <= text_.size() && bytes <= text_.size() - at; }
  /// Returns the number at an offset. The caller has checked that it lies in the file.
  template <class T>
  T number(uint64_t at) const {
    T value;
    std::memcpy(&value, text_.data() + at, sizeof(T));
    return value;
  }

  /// Finds the end-of-central-directory record, which may be followed by a comment.
  Status find_directory(uint64_t& entries, uint64_t& bytes, uint64_t& offset) const {
    const uint64_t size = text_.size();
    if (size < kEndBytes) return reader_.error_at(0, "{} bytes are too few for a zip archive", size);
    const uint64_t first = size - std::min(size, kEndBytes + kMaxComment);
    for (uint64_t at = size - kEndBytes + 1; at-- > first;) {
      if (number<uint32_t>(at) != kEnd || at + kEndBytes + number<uint16_t>(at + 20) != size) continue;
      entries = number<uint16_t>(at + 10);
      bytes = number<uint32_t>(at + 12);
      offset = number<uint32_t>(at + 16);
      if (entries != 0xffff && bytes != kElsewhere && offset != kElsewhere) return {};
      return find_directory64(at, entries, bytes, offset);
    }
    return reader_.error_at(first,
                            "there is no end record of a zip archive: the file is incomplete, or another format");
  }
  Status find_directory64(uint64_t end, uint64_t& entries, uint64_t& bytes, uint64_t& offset) const {
    if (end < kLocatorBytes || number<uint32_t>(end - kLocatorBytes) != kLocator64)
      return reader_.error_at(end, "the archive needs a zip64 record, which is not there");
    const auto at = number<uint64_t>(end - kLocatorBytes + 8);
    if (!fits(at, kEnd64Bytes) || number<uint32_t>(at) != kEnd64)
      return reader_.error_at(end - kLocatorBytes, "the zip64 record is not at byte {}", at);
    entries = number<uint64_t>(at + 32);
    bytes = number<uint64_t>(at + 40);
    offset = number<uint64_t>(at + 48);
    return {};
  }

  /// Reads the entry at `at`, which must lie within the directory.
  Status read_entry(uint64_t at, ZipMember& member) {
    const uint64_t name_bytes = number<uint16_t>(at + 28), extra_bytes = number<uint16_t>(at + 30);
    member.name = text_.substr(at + kEntryBytes, name_bytes);
    reader_.set_place("member", member.name);
    uint64_t packed = number<uint32_t>(at + 20), plain = number<uint32_t>(at + 24), local = number<uint32_t>(at + 42);
    const bool is_encrypted = (number<uint16_t>(at + 8) & 1) != 0;
    member.is_stored = number<uint16_t>(at + 10) == 0 && !is_encrypted;
    REDLINE_TRY(read_extra64(at + kEntryBytes + name_bytes, extra_bytes, plain, packed, local));
    if (member.is_stored && plain != packed)
      return reader_.error_at(at, "an uncompressed member of {} bytes has {} bytes in the archive", plain, packed);
    if (!fits(local, kLocalBytes) || number<uint32_t>(local) != kLocal)
      return reader_.error_at(at, "the member is not at byte {}, where the directory expects it", local);
    // Lengths in the local header may differ from the directory's: writers pad it to align the data.
    const uint64_t data = local + kLocalBytes + number<uint16_t>(local + 26) + number<uint16_t>(local + 28);
    if (!fits(data, packed)) return reader_.error_at(at, "{} bytes from byte {} lie beyond the end", packed, data);
    member.offset = static_cast<int64_t>(data);
    member.bytes = static_cast<int64_t>(packed);
    reader_.set_place();
    return {};
  }
  /// Replaces the values that do not fit into 32 bits by those of the zip64 field, which has them in the order of the
  /// parameters.
  Status read_extra64(uint64_t at, uint64_t bytes, uint64_t& plain, uint64_t& packed, uint64_t& local) const {
    if (plain != kElsewhere && packed != kElsewhere && local != kElsewhere) return {};
    for (uint64_t left = bytes; left >= 4;) {
      const uint64_t field = number<uint16_t>(at + 2);
      if (field > left - 4) break;
      if (number<uint16_t>(at) == 1) {
        uint64_t place = at + 4;
        for (uint64_t* value : {&plain, &packed, &local}) {
          if (*value != kElsewhere) continue;
          if (place + 8 > at + 4 + field) return reader_.error_at(at, "the zip64 field is too short");
          *value = number<uint64_t>(place);
          place += 8;
        }
        return {};
      }
      at += 4 + field;
      left -= 4 + field;
    }
    return reader_.error_at(at, "the zip64 field is missing");
  }

  ByteReader reader_;
  std::string_view text_;
};

}  // namespace

Result<std::vector<ZipMember>> read_zip_directory(const MappedFile& file) { return ZipReader(file).read(); }

}  // namespace redline
