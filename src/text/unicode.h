// UTF-8 and the few Unicode properties that tokenizers ask for. Nothing here fails on bad bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace redline {

/// One step of a UTF-8 walk. An ill-formed place gives valid = false and the length of its maximal subpart (Unicode
/// standard, section 3.9, "U+FFFD substitution of maximal subparts"): the bytes that one U+FFFD stands for.
struct Utf8Char {
  uint32_t value = 0xFFFD;
  uint8_t bytes = 1;
  bool valid = false;
};
/// pos < text.size().
Utf8Char utf8_at(std::string_view text, size_t pos);
void append_utf8(std::string& out, uint32_t code_point);
/// Ill-formed sequences become U+FFFD; the rest is unchanged.
std::string repair_utf8(std::string_view text);
/// Bytes at the end of `text` that begin a sequence and may be completed by bytes to come: 0 to 3.
size_t incomplete_utf8_tail(std::string_view text);

/// Bytes of the extended grapheme cluster (Unicode annex 29) that begins at `pos`. An ill-formed place is one by
/// itself.
size_t grapheme_bytes(std::string_view text, size_t pos);

/// Calls visit(run, valid) for the longest well-formed and ill-formed runs in order; together they are `text`.
template <class Visit>
void for_each_utf8_run(std::string_view text, Visit&& visit) {
  size_t begin = 0;
  bool valid = true;
  for (size_t pos = 0; pos < text.size();) {
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

// Properties as the tokenizers package has them (Rust's char methods and the Unicode general categories).
bool is_white_space(uint32_t c);  ///< White_Space
bool is_numeric(uint32_t c);      ///< Nd, Nl, No
bool is_decimal(uint32_t c);      ///< Nd
bool is_punctuation(uint32_t c);  ///< category P, and every ASCII symbol
bool is_mark(uint32_t c);         ///< category M
bool is_word(uint32_t c);         ///< Alphabetic, M, Nd, Pc
bool is_regex_word(uint32_t c);   ///< Oniguruma's \w: besides, the superscripts and fractions of Latin-1

enum class NormalForm : uint8_t { nfc, nfd, nfkc, nfkd };
/// Ill-formed runs are passed through; the runs between them are normalised.
std::string normalize_unicode(std::string_view text, NormalForm form);
std::string lowercase_unicode(std::string_view text);
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

/// GPT-2's spelling of bytes as printable characters ("bytes_to_unicode": Radford et al. 2019, released code):
/// printable Latin-1 stands for itself, the other 68 bytes are U+0100 and up in order.
void append_byte_spelling(std::string& out, uint8_t byte);
std::string spell_bytes(std::string_view bytes);
/// Back to the bytes. False, with `out` untouched, when a character is no byte's spelling.
bool unspell_bytes(std::string_view spelled, std::string& out);

}  // namespace redline
