// UTF-8. Ill-formed bytes are never an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace redline {

/// One decoded character. Ill-formed input gives valid = false and the length of its maximal subpart (Unicode standard,
/// section 3.9, "U+FFFD substitution of maximal subparts"): the bytes that one U+FFFD replaces.
struct Utf8Char {
  uint32_t value = 0xFFFD;
  uint8_t bytes = 1;
  bool valid = false;
};
/// Decodes the character at `pos`, which must be less than text.size().
Utf8Char utf8_at(std::string_view text, size_t pos);
void append_utf8(std::string& out, uint32_t code_point);
/// Replaces ill-formed sequences by U+FFFD.
std::string repair_utf8(std::string_view text);
bool is_ascii(std::string_view text);
/// Returns the first position from `pos` on of a byte that is not ASCII, or the end of the text.
size_t end_of_ascii(std::string_view text, size_t pos);
bool is_utf8(std::string_view text);  ///< true if the whole text is well-formed
/// Returns the number of bytes (0 to 3) at the end of `text` that are an incomplete sequence which more bytes could
/// complete.
size_t incomplete_utf8_tail(std::string_view text);

/// Calls visit(run, valid) for the maximal well-formed and ill-formed runs in order; together they are `text`.
template <class Visit>
void for_each_utf8_run(std::string_view text, Visit&& visit) {
  size_t begin = 0;
  bool valid = true;
  for (size_t pos = 0; pos < text.size();) {
    if (valid && (pos = end_of_ascii(text, pos)) == text.size()) break;
    const Utf8Char c = utf8_at(text, pos);
    if (c.valid != valid) {
      if (pos > begin) visit(text.substr(begin, pos - begin), valid);
      begin = pos;
      valid = c.valid;
    }
    pos += c.bytes;
  }
  if (begin < text.size()) visit(text.substr(begin), valid);
}

}  // namespace redline
