#include "media/exif.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "media/text_encoding.h"
#include "media/tiff_numbers.h"

namespace redline {
namespace {

constexpr uint16_t kImageDescription = 0x010e, kModel = 0x0110, kOrientation = 0x0112, kExifFolder = 0x8769,
                   kUserComment = 0x9286;
constexpr uint16_t kAscii = 2, kLong = 4, kUndefined = 7;
constexpr std::string_view kUnicode("UNICODE\0", 8), kAsciiCode("ASCII\0\0\0", 8), kNoCode("\0\0\0\0\0\0\0\0", 8);

/// Converts a comment in UTF-16 to UTF-8. The byte order mark gives its byte order. Without one, it is the order in
/// which more characters are ASCII, because programs disagree whether the order of the TIFF structure applies.
std::string from_utf16(std::string_view bytes) {
  if (bytes.starts_with("\xfe\xff")) return utf8_of_utf16(bytes.substr(2), true);
  if (bytes.starts_with("\xff\xfe")) return utf8_of_utf16(bytes.substr(2), false);
  size_t zeros[2] = {};
  for (size_t i = 0; i < bytes.size(); ++i) zeros[i % 2] += bytes[i] == '\0';
  return utf8_of_utf16(bytes, zeros[0] >= zeros[1]);
}

/// Returns the pixels turned upright. The orientation maps pixel (x, y) of the result to one of the source; each pixel
/// has `channels` bytes.
std::vector<uint8_t> oriented(const std::vector<uint8_t>& pixels, int64_t width, int64_t height, int64_t channels,
                              int orientation) {
  const bool swaps = swaps_sides(orientation);
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  std::vector<uint8_t> result(pixels.size());
  uint8_t* to = result.data();
  for (int64_t y = 0; y < (swaps ? width : height); ++y)
    for (int64_t x = 0; x < (swaps ? height : width); ++x) {
      const int64_t column = swaps ? y : x, row = swaps ? x : y;
      const int64_t from_x = from_right ? width - 1 - column : column;
      const int64_t from_y = from_bottom ? height - 1 - row : row;
      to = std::copy_n(pixels.data() + (from_y * width + from_x) * channels, channels, to);
    }
  return result;
}

bool is_turned(int orientation) { return orientation >= 2 && orientation <= 8; }

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
  if (own != text.end()) main.push_back({kImageDescription, kAscii, utf8_of(own->second) + '\0'});
  if (parameters != text.end())
    exif.push_back({kUserComment, kUndefined, std::string(kUnicode) + utf16_be_of(utf8_of(parameters->second))});
  if (main.empty() && exif.empty()) return "";
  // The parts are in this order: header, main directory, EXIF directory, values.
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
  const TiffNumbers reader(tiff);
  const size_t main = reader.first_directory();
  const auto ascii = [&](uint16_t tag) -> std::string_view {
    const size_t entry = reader.entry(main, tag);
    const std::string_view bytes = entry ? reader.bytes(entry) : std::string_view();
    return bytes.substr(0, bytes.find('\0'));
  };
  // Cameras write a description too, so it counts only in the form below.
  if (const std::string_view own = ascii(kImageDescription); own.starts_with('{')) text["redline"] = utf8_of(own);
  constexpr std::string_view kComfyPrompt = "prompt:";
  if (const std::string_view model = ascii(kModel); model.starts_with(kComfyPrompt))
    text["prompt"] = utf8_of(model.substr(kComfyPrompt.size()));
  const size_t folder = reader.entry(main, kExifFolder);
  const size_t entry = folder ? reader.entry(reader.number(folder + 8, 4), kUserComment) : 0;
  if (entry == 0) return;
  const std::string_view bytes = reader.bytes(entry);
  if (bytes.starts_with(kUnicode)) text["parameters"] = from_utf16(bytes.substr(kUnicode.size()));
  else if (bytes.starts_with(kAsciiCode)) text["parameters"] = utf8_of(bytes.substr(kAsciiCode.size()));
  else if (bytes.starts_with(kNoCode)) text["parameters"] = utf8_of(bytes.substr(kNoCode.size()));
}

int exif_orientation(std::string_view tiff) {
  const TiffNumbers reader(tiff);
  const size_t entry = reader.entry(reader.first_directory(), kOrientation);
  return entry ? static_cast<int>(reader.number(entry + 8, 2)) : 1;
}

void apply_orientation(std::vector<uint8_t>& alpha, int64_t width, int64_t height, int orientation) {
  if (is_turned(orientation)) alpha = oriented(alpha, width, height, 1, orientation);
}

RgbImage apply_orientation(RgbImage image, int orientation) {
  if (!is_turned(orientation)) return image;
  image.rgb = oriented(image.rgb, image.width, image.height, 3, orientation);
  if (swaps_sides(orientation)) std::swap(image.width, image.height);
  return image;
}

}  // namespace redline
