// Directories of TIFF files and of EXIF data, which has the same form.
#pragma once

#include <cstdint>
#include <string_view>

namespace redline {

/// Reads numbers of a TIFF structure. Bytes beyond its end count as 0.
class TiffNumbers {
 public:
  explicit TiffNumbers(std::string_view tiff) : tiff_(tiff), big_(tiff.starts_with("MM")) {}

  bool is_big_endian() const { return big_; }
  uint32_t number(size_t at, int width) const {
    uint32_t value = 0;
    for (int i = 0; i < width; ++i) {
      const size_t place = at + static_cast<size_t>(big_ ? i : width - 1 - i);
      value = value << 8 | (place < tiff_.size() ? static_cast<uint8_t>(tiff_[place]) : 0);
    }
    return value;
  }
  size_t first_directory() const { return number(4, 4); }
  /// Returns the offset of the entry of `tag` in a directory; 0 if there is none.
  size_t entry(size_t directory, uint16_t tag) const {
    const uint32_t entries = number(directory, 2);
    for (uint32_t i = 0; i < entries && directory + 2 + size_t{12} * i < tiff_.size(); ++i) {
      const size_t at = directory + 2 + size_t{12} * i;
      if (number(at, 2) == tag) return at;
    }
    return 0;
  }
  /// Returns the bytes of an entry of type ASCII or UNDEFINED.
  std::string_view bytes(size_t entry) const {
    const size_t count = number(entry + 4, 4);
    const size_t at = count <= 4 ? entry + 8 : number(entry + 8, 4);
    return at < tiff_.size() ? tiff_.substr(at, count) : std::string_view();
  }

 private:
  std::string_view tiff_;
  bool big_;
};

}  // namespace redline
