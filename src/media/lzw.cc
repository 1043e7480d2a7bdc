#include "media/lzw.h"

#include <algorithm>
#include <array>

namespace redline {
namespace {

constexpr int kMaxCodeBits = 12;
constexpr uint32_t kTableSize = 1u << kMaxCodeBits;

/// Reads codes of a varying number of bits.
class CodeReader {
 public:
  CodeReader(std::string_view bytes, bool is_high_bit_first) : bytes_(bytes), is_high_bit_first_(is_high_bit_first) {}

  /// Reads a code of `width` bits. Returns false if fewer bits are left.
  bool read(int width, uint32_t& code) {
    while (num_bits_ < width) {
      if (at_ == bytes_.size()) return false;
      const uint32_t byte = static_cast<uint8_t>(bytes_[at_++]);
      bits_ = is_high_bit_first_ ? bits_ << 8 | byte : bits_ | byte << num_bits_;
      num_bits_ += 8;
    }
    const uint32_t mask = (1u << width) - 1;
    num_bits_ -= width;
    if (is_high_bit_first_) {
      code = bits_ >> num_bits_ & mask;
    } else {
      code = bits_ & mask;
      bits_ >>= width;
    }
    return true;
  }

 private:
  std::string_view bytes_;
  bool is_high_bit_first_;
  size_t at_ = 0;
  uint32_t bits_ = 0;
  int num_bits_ = 0;
};

/// The table of the codes' strings. Each string is that of an earlier code and one more byte.
struct LzwTable {
  std::array<uint16_t, kTableSize> prefix = {}, length = {};
  std::array<uint8_t, kTableSize> last = {}, first = {};

  explicit LzwTable(uint32_t literals) {
    for (uint32_t i = 0; i < literals; ++i) {
      length[i] = 1;
      first[i] = last[i] = static_cast<uint8_t>(i);
    }
  }
  void add(uint32_t code, uint32_t previous, uint8_t byte) {
    prefix[code] = static_cast<uint16_t>(previous);
    length[code] = static_cast<uint16_t>(length[previous] + 1);
    first[code] = first[previous];
    last[code] = byte;
  }
  /// Writes the string of a code as far as `out` has room, and returns the number of bytes written.
  size_t write(uint32_t code, std::span<uint8_t> out) const {
    const size_t count = std::min<size_t>(length[code], out.size());
    for (size_t i = length[code]; i-- > 0; code = prefix[code])
      if (i < count) out[i] = last[code];
    return count;
  }
};

}  // namespace

size_t decode_lzw(std::string_view codes, const LzwForm& form, std::span<uint8_t> out) {
  const uint32_t clear = 1u << form.literal_bits, end = clear + 1;
  constexpr uint32_t kNone = kTableSize;
  LzwTable table(clear);
  CodeReader reader(codes, form.is_high_bit_first);
  uint32_t next = end + 1, previous = kNone, code = 0;
  int width = form.literal_bits + 1;
  size_t written = 0;
  while (written < out.size() && reader.read(width, code) && code != end) {
    if (code == clear) {
      next = end + 1;
      previous = kNone;
      width = form.literal_bits + 1;
      continue;
    }
    if (previous == kNone) {
      if (code > end) break;
    } else {
      if (code > next || (code == next && next == kTableSize)) break;
      if (next < kTableSize) table.add(next, previous, table.first[code == next ? previous : code]), ++next;
      if (next + (form.widens_one_early ? 1 : 0) >= 1u << width && width < kMaxCodeBits) ++width;
    }
    written += table.write(code, out.subspan(written));
    previous = code;
  }
  return written;
}

}  // namespace redline
