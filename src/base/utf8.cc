#include "base/utf8.h"

#include <algorithm>
#include <cstring>

namespace redline {

Utf8Char utf8_at(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) { return pos + i < text.size() ? static_cast<uint8_t>(text[pos + i]) : 0u; };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  if (lead < 0xC2 || lead > 0xF4) return {};
  // The range of the second byte depends on the lead (table 3-7 of the Unicode standard); it excludes overlong forms,
  // surrogates and values past U+10FFFF.
  const uint32_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint32_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  const uint8_t need = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (byte(1) < low || byte(1) > high) return {};
  uint32_t value = ((lead & (0x7Fu >> need)) << 6) | (byte(1) & 0x3F);
  for (uint8_t i = 2; i < need; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {0xFFFD, i, false};
    value = (value << 6) | (byte(i) & 0x3F);
  }
  return {value, need, true};
}

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (c >> 6)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (c >> 12)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | (c >> 18)));
    out.push_back(static_cast<char>(0x80 | ((c >> 12) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    if (c.valid) {
      out.append(text.substr(pos, c.bytes));
    } else {
      append_utf8(out, 0xFFFD);
    }
    pos += c.bytes;
  }
  return out;
}

size_t incomplete_utf8_tail(std::string_view text) {
  const size_t most = std::min<size_t>(3, text.size());
  for (size_t back = 1; back <= most; ++back) {
    const uint8_t lead = static_cast<uint8_t>(text[text.size() - back]);
    if ((lead & 0xC0) == 0x80) continue;  // a continuation byte: search backwards for its lead
    if (lead < 0xC2 || lead > 0xF4) return 0;
    const size_t need = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    const Utf8Char c = utf8_at(text, text.size() - back);
    // Incomplete only when all bytes so far are valid: then the maximal subpart reaches the end of the text.
    return back < need && !c.valid && c.bytes == back ? back : 0;
  }
  return 0;
}

size_t end_of_ascii(std::string_view text, size_t pos) {
  constexpr size_t kWords = 8, kRun = kWords * sizeof(uint64_t);
  constexpr uint64_t kHighBits = 0x8080808080808080ull;
  if (pos < text.size() && (static_cast<uint8_t>(text[pos]) & 0x80) != 0) return pos;
  for (; pos + kRun <= text.size(); pos += kRun) {
    uint64_t words[kWords], any = 0;
    std::memcpy(words, text.data() + pos, kRun);
    for (const uint64_t word : words) any |= word;
    if ((any & kHighBits) != 0) break;
  }
  while (pos < text.size() && (static_cast<uint8_t>(text[pos]) & 0x80) == 0) ++pos;
  return pos;
}

bool is_ascii(std::string_view text) { return end_of_ascii(text, 0) == text.size(); }

bool is_utf8(std::string_view text) {
  for (size_t pos = 0; (pos = end_of_ascii(text, pos)) < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    if (!c.valid) return false;
    pos += c.bytes;
  }
  return true;
}

}  // namespace redline
