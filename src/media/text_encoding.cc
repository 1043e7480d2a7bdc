#include "media/text_encoding.h"

#include "base/utf8.h"

namespace redline {

std::string utf8_of(std::string_view bytes) {
  if (is_utf8(bytes)) return std::string(bytes);
  std::string text;
  for (const char c : bytes) append_utf8(text, static_cast<uint8_t>(c));
  return text;
}

std::string utf8_of_utf16(std::string_view bytes, bool is_big_endian) {
  std::string text;
  const auto unit = [&](size_t at) {
    const auto first = static_cast<uint8_t>(bytes[at]), second = static_cast<uint8_t>(bytes[at + 1]);
    return static_cast<uint32_t>(is_big_endian ? first << 8 | second : second << 8 | first);
  };
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    uint32_t code = unit(i);
    if (code >= 0xd800 && code < 0xdc00 && i + 3 < bytes.size() && unit(i + 2) >= 0xdc00 && unit(i + 2) < 0xe000) {
      code = 0x10000 + ((code - 0xd800) << 10) + (unit(i + 2) - 0xdc00);
      i += 2;
    } else if (code >= 0xd800 && code < 0xe000) {
      code = 0xfffd;
    }
    append_utf8(text, code);
  }
  return text;
}

std::string utf16_be_of(std::string_view utf8) {
  std::string bytes;
  const auto put = [&](uint32_t unit) {
    bytes += static_cast<char>(unit >> 8);
    bytes += static_cast<char>(unit & 255);
  };
  for (size_t pos = 0; pos < utf8.size();) {
    const Utf8Char c = utf8_at(utf8, pos);
    pos += c.bytes;
    if (c.value < 0x10000) {
      put(c.value);
    } else {
      put(0xd800 + ((c.value - 0x10000) >> 10 & 0x3ff));
      put(0xdc00 + ((c.value - 0x10000) & 0x3ff));
    }
  }
  return bytes;
}

}  // namespace redline
