#include "media/exif.h"

#include <utility>
#include <vector>

namespace redline {
namespace {

constexpr uint16_t kImageDescription = 0x010e, kOrientation = 0x0112, kExifFolder = 0x8769, kUserComment = 0x9286;
constexpr uint16_t kAscii = 2, kLong = 4, kUndefined = 7;
constexpr std::string_view kUnicode("UNICODE\0", 8), kAsciiCode("ASCII\0\0\0", 8);

/// Numbers of a TIFF structure; 0 beyond its end.
class TiffReader {
 public:
  explicit TiffReader(std::string_view tiff) : tiff_(tiff), big_(tiff.starts_with("MM")) {}

  uint32_t number(size_t at, int width) const {
    uint32_t value = 0;
    for (int i = 0; i < width; ++i) {
      const size_t place = at + static_cast<size_t>(big_ ? i : width - 1 - i);
      value = value << 8 | (place < tiff_.size() ? static_cast<uint8_t>(tiff_[place]) : 0);
    }
    return value;
  }
  size_t first_directory() const { return number(4, 4); }
  /// Where the entry of `tag` is in a directory; 0: it has none.
  size_t entry(size_t directory, uint16_t tag) const {
    const uint32_t entries = number(directory, 2);
    for (uint32_t i = 0; i < entries && directory + 2 + size_t{12} * i < tiff_.size(); ++i) {
      const size_t at = directory + 2 + size_t{12} * i;
      if (number(at, 2) == tag) return at;
    }
    return 0;
  }
  /// The bytes of an entry of type ASCII or UNDEFINED.
  std::string_view bytes(size_t entry) const {
    const size_t count = number(entry + 4, 4);
    const size_t at = count <= 4 ? entry + 8 : number(entry + 8, 4);
    return at < tiff_.size() ? tiff_.substr(at, count) : std::string_view();
  }

 private:
  std::string_view tiff_;
  bool big_;
};

void add_utf8(uint32_t code, std::string& text) {
  const auto put = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) return put(0xc0 | code >> 6), put(0x80 | (code & 63));
  if (code < 0x10000) return put(0xe0 | code >> 12), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
  put(0xf0 | code >> 18), put(0x80 | (code >> 12 & 63)), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
}

std::string from_utf16_be(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const auto unit = [&](size_t at) {
      return static_cast<uint32_t>(static_cast<uint8_t>(bytes[at]) << 8 | static_cast<uint8_t>(bytes[at + 1]));
    };
    uint32_t code = unit(i);
    if (code >= 0xd800 && code < 0xdc00 && i + 3 < bytes.size() && unit(i + 2) >= 0xdc00 && unit(i + 2) < 0xe000) {
      code = 0x10000 + ((code - 0xd800) << 10) + (unit(i + 2) - 0xdc00);
      i += 2;
    } else if (code >= 0xd800 && code < 0xe000) {
      code = 0xfffd;
    }
    add_utf8(code, text);
  }
  return text;
}

std::string to_utf16_be(std::string_view text) {
  std::string bytes;
  const auto put = [&](uint32_t unit) {
    bytes += static_cast<char>(unit >> 8);
    bytes += static_cast<char>(unit & 255);
  };
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i++]);
    int more = lead >= 0xf0 && lead < 0xf8 ? 3 : lead >= 0xe0 && lead < 0xf0 ? 2 : lead >= 0xc0 && lead < 0xe0 ? 1 : 0;
    uint32_t code = lead < 0x80 ? lead : more > 0 ? lead & (0x3f >> more) : 0xfffd;
    for (; more > 0; --more) {
      if (i == text.size() || (static_cast<uint8_t>(text[i]) & 0xc0) != 0x80) {
        code = 0xfffd;
        break;
      }
      code = code << 6 | (static_cast<uint8_t>(text[i++]) & 0x3f);
    }
    if (code < 0x10000) {
      put(code);
    } else {
      put(0xd800 + ((code - 0x10000) >> 10 & 0x3ff));
      put(0xdc00 + ((code - 0x10000) & 0x3ff));
    }
  }
  return bytes;
}

}  // namespace

std::string make_exif(const ImageText& text) {
  const auto parameters = text.find("parameters"), own = text.find("redline");
  std::string tiff("MM\0*", 4), values;
  const auto put = [&](uint32_t value, int width) {
    while (width-- > 0) tiff += static_cast<char>(value >> (8 * width) & 255);
  };
  const auto entry = [&](uint16_t tag, uint16_t type, uint32_t count, uint32_t value) {
    put(tag, 2), put(type, 2), put(count, 4), put(value, 4);
  };
  struct Field {
    uint16_t tag, type;
    std::string bytes;
  };
  std::vector<Field> main, exif;
  if (own != text.end()) main.push_back({kImageDescription, kAscii, own->second + '\0'});
  if (parameters != text.end())
    exif.push_back({kUserComment, kUndefined, std::string(kUnicode) + to_utf16_be(parameters->second)});
  if (main.empty() && exif.empty()) return "";
  // Header, main directory, EXIF directory, then the values in this order.
  const auto directory_bytes = [](size_t entries) { return static_cast<uint32_t>(2 + 12 * entries + 4); };
  const uint32_t exif_at = 8 + directory_bytes(main.size() + (exif.empty() ? 0 : 1));
  const uint32_t values_at = exif_at + (exif.empty() ? 0 : directory_bytes(exif.size()));
  const auto put_fields = [&](const std::vector<Field>& fields) {
    for (const Field& field : fields) {
      std::string bytes = field.bytes;
      bytes.resize(std::max<size_t>(bytes.size(), 5), '\0');  // up to four bytes would be stored in the entry
      entry(field.tag, field.type, static_cast<uint32_t>(bytes.size()),
            values_at + static_cast<uint32_t>(values.size()));
      values += bytes;
      if (values.size() % 2 != 0) values += '\0';
    }
  };
  put(8, 4);
  put(static_cast<uint32_t>(main.size() + (exif.empty() ? 0 : 1)), 2);
  put_fields(main);
  if (!exif.empty()) entry(kExifFolder, kLong, 1, exif_at);
  put(0, 4);
  if (!exif.empty()) {
    put(static_cast<uint32_t>(exif.size()), 2);
    put_fields(exif);
    put(0, 4);
  }
  return tiff + values;
}

void read_exif(std::string_view tiff, ImageText& text) {
  const TiffReader reader(tiff);
  const size_t main = reader.first_directory();
  if (const size_t entry = reader.entry(main, kImageDescription)) {
    const std::string_view bytes = reader.bytes(entry);
    text["redline"] = std::string(bytes.substr(0, bytes.find('\0')));
  }
  const size_t folder = reader.entry(main, kExifFolder);
  const size_t entry = folder ? reader.entry(reader.number(folder + 8, 4), kUserComment) : 0;
  if (entry == 0) return;
  const std::string_view bytes = reader.bytes(entry);
  if (bytes.starts_with(kUnicode)) text["parameters"] = from_utf16_be(bytes.substr(kUnicode.size()));
  else if (bytes.starts_with(kAsciiCode)) text["parameters"] = std::string(bytes.substr(kAsciiCode.size()));
}

int exif_orientation(std::string_view tiff) {
  const TiffReader reader(tiff);
  const size_t entry = reader.entry(reader.first_directory(), kOrientation);
  return entry ? static_cast<int>(reader.number(entry + 8, 2)) : 1;
}

RgbImage apply_orientation(RgbImage image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  const bool swaps = orientation >= 5;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  RgbImage result{swaps ? image.height : image.width, swaps ? image.width : image.height, {}};
  result.rgb.resize(image.rgb.size());
  for (int64_t y = 0; y < result.height; ++y)
    for (int64_t x = 0; x < result.width; ++x) {
      const int64_t column = swaps ? y : x, row = swaps ? x : y;
      const int64_t from_x = from_right ? image.width - 1 - column : column;
      const int64_t from_y = from_bottom ? image.height - 1 - row : row;
      for (int64_t c = 0; c < 3; ++c)
        result.rgb[static_cast<size_t>((y * result.width + x) * 3 + c)] =
            image.rgb[static_cast<size_t>((from_y * image.width + from_x) * 3 + c)];
    }
  return result;
}

}  // namespace redline
