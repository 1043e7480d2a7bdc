// Converts the encodings of text in image files.
#pragma once

#include <string>
#include <string_view>

namespace redline {

/// Returns the text in UTF-8. Well-formed UTF-8 is kept, even if the format declares Latin-1: programs write UTF-8
/// there, and Latin-1 text that is also UTF-8 does not occur in practice. Other bytes are read as Latin-1.
std::string utf8_of(std::string_view bytes);
/// Converts UTF-16 without byte order mark to UTF-8. Unpaired surrogates become U+FFFD.
std::string utf8_of_utf16(std::string_view bytes, bool is_big_endian);
/// Converts UTF-8 to big-endian UTF-16 without byte order mark. Ill-formed sequences become U+FFFD.
std::string utf16_be_of(std::string_view utf8);

}  // namespace redline
