// Encodings of the text that image files carry.
#pragma once

#include <string>
#include <string_view>

namespace redline {

/// The text in UTF-8. Well-formed UTF-8 stays, also where a format declares Latin-1: programs write it there, and such
/// Latin-1 text does not occur. Other bytes are taken for Latin-1.
std::string utf8_of(std::string_view bytes);
/// UTF-16 without byte order mark. Surrogates without a partner become U+FFFD.
std::string utf8_of_utf16(std::string_view bytes, bool is_big_endian);
/// Big-endian UTF-16 without byte order mark. Ill-formed sequences become U+FFFD.
std::string utf16_be_of(std::string_view utf8);

}  // namespace redline
