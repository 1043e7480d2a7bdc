// Python's str on UTF-8: positions count characters, and classes of characters are those of str's methods.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace redline::jinja {

/// Returns the character at `pos` and advances `pos`. Requires well-formed UTF-8 and pos < text.size().
uint32_t next_char(std::string_view text, size_t& pos);
inline bool is_ascii(char c) { return static_cast<uint8_t>(c) < 0x80; }
int64_t count_chars(std::string_view text);
/// Returns the byte offset of character `index`; text.size() past the end.
size_t char_offset(std::string_view text, int64_t index);

bool is_space(uint32_t c);       ///< str.isspace
bool is_line_break(uint32_t c);  ///< str.splitlines
bool is_alpha(uint32_t c);
bool is_decimal_digit(uint32_t c);
bool is_digit(uint32_t c);
bool is_numeric_char(uint32_t c);
inline bool is_alnum(uint32_t c) { return is_alpha(c) || is_decimal_digit(c) || is_digit(c) || is_numeric_char(c); }
bool is_upper(uint32_t c);
bool is_lower(uint32_t c);
bool is_title(uint32_t c);
bool is_printable(uint32_t c);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        ///< str.title
std::string to_capitalized(std::string_view text);  ///< str.capitalize
std::string swap_case(std::string_view text);
std::string fold_case(std::string_view text);

/// str.lstrip(), rstrip() and strip(). `chars`: the set to strip; nullptr: white space.
std::string_view strip_left(std::string_view text, const std::string_view* chars = nullptr);
std::string_view strip_right(std::string_view text, const std::string_view* chars = nullptr);
inline std::string_view strip(std::string_view text, const std::string_view* chars = nullptr) {
  return strip_right(strip_left(text, chars), chars);
}

/// str.split() and rsplit() at white space; max_splits < 0: no limit.
std::vector<std::string_view> split_space(std::string_view text, int64_t max_splits);
std::vector<std::string_view> rsplit_space(std::string_view text, int64_t max_splits);
/// str.split() and rsplit() at a separator, which must not be empty.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t max_splits);
std::vector<std::string_view> rsplit_at(std::string_view text, std::string_view separator, int64_t max_splits);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
/// Returns the size of the result of replaced(), to be checked before that is called.
size_t replaced_bytes(std::string_view text, std::string_view from, std::string_view to, int64_t max_count);
std::string replaced(std::string_view text, std::string_view from, std::string_view to, int64_t max_count);

/// Appends repr() of a str.
void append_repr(std::string& out, std::string_view text);
/// Returns repr() of a float: the shortest digits that are read back as the same number.
std::string float_repr(double value);

/// Returns markupsafe.escape(text).
std::string escape_html(std::string_view text);

}  // namespace redline::jinja
