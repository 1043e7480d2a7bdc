// UTF-8 and the Unicode properties needed by tokenizers. Ill-formed bytes are never an error.
#pragma once

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
/// Requires pos < text.size().
Utf8Char utf8_at(std::string_view text, size_t pos);
void append_utf8(std::string& out, uint32_t code_point);
/// Replaces ill-formed sequences by U+FFFD.
std::string repair_utf8(std::string_view text);
bool is_ascii(std::string_view text);
/// The first position from `pos` on, up to the end, of a byte that is not ASCII.
size_t end_of_ascii(std::string_view text, size_t pos);
bool is_utf8(std::string_view text);  ///< well-formed throughout
/// Number of bytes (0 to 3) at the end of `text` that are an incomplete sequence which more bytes could complete.
size_t incomplete_utf8_tail(std::string_view text);

/// Length in bytes of the extended grapheme cluster (Unicode annex 29) at `pos`. An ill-formed subpart is a cluster.
size_t grapheme_bytes(std::string_view text, size_t pos);

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

// Character properties as in the tokenizers package (Rust's char methods and the Unicode general categories).
bool is_white_space(uint32_t c);  ///< White_Space
bool is_numeric(uint32_t c);      ///< Nd, Nl, No
bool is_decimal(uint32_t c);      ///< Nd
bool is_punctuation(uint32_t c);  ///< category P, and every ASCII symbol
bool is_mark(uint32_t c);         ///< category M
bool is_nonspacing(uint32_t c);   ///< Mn
bool is_other(uint32_t c);        ///< category C: controls, formats, private use, unassigned
bool is_word(uint32_t c);         ///< Alphabetic, M, Nd, Pc
bool is_regex_word(uint32_t c);   ///< Oniguruma's \w: also the superscripts and fractions of Latin-1

enum class NormalForm : uint8_t { nfc, nfd, nfkc, nfkd };
/// Normalizes well-formed runs; ill-formed ones are passed through.
std::string normalize_unicode(std::string_view text, NormalForm form);
/// The first place from `pos` on at which `text` can be cut so that both parts can be normalized alone, in any form: the
/// begin of a character that composes with none before it and that no mark moves across. The end if there is none.
size_t normalization_cut(std::string_view text, size_t pos);
std::string lowercase_unicode(std::string_view text);
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

/// GPT-2's mapping of bytes to printable characters ("bytes_to_unicode": Radford et al. 2019, released code): printable
/// Latin-1 maps to itself, the other 68 bytes to U+0100 and up in order.
void append_byte_spelling(std::string& out, uint8_t byte);
std::string spell_bytes(std::string_view bytes);
/// The inverse. False, leaving `out` unchanged, when a character is not a byte's spelling.
bool unspell_bytes(std::string_view spelled, std::string& out);

}  // namespace redline
