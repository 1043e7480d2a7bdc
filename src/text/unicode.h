// The Unicode properties needed by tokenizers. Ill-formed bytes are never an error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace redline {

/// Returns the length in bytes of the extended grapheme cluster (Unicode annex 29) at `pos`. An ill-formed subpart is a
/// cluster.
size_t grapheme_bytes(std::string_view text, size_t pos);

// Character properties as in the tokenizers package (Rust's char methods and the Unicode general categories).
bool is_white_space(uint32_t c);  ///< White_Space
bool is_numeric(uint32_t c);      ///< Nd, Nl, No
bool is_decimal(uint32_t c);      ///< Nd
bool is_punctuation(uint32_t c);  ///< category P, and every ASCII symbol
bool is_mark(uint32_t c);         ///< category M
bool is_nonspacing(uint32_t c);   ///< Mn
bool is_other(uint32_t c);        ///< category C: controls, formats, private use, unassigned
bool is_word(uint32_t c);         ///< Alphabetic, M, Nd, Pc
bool is_regex_word(uint32_t c);   ///< Oniguruma's \w: is_word(), and the superscripts and fractions of Latin-1

enum class NormalForm : uint8_t { nfc, nfd, nfkc, nfkd };
/// Normalizes well-formed runs; ill-formed ones are passed through.
std::string normalize_unicode(std::string_view text, NormalForm form);
/// Returns the first position from `pos` on at which `text` can be divided so that both parts can be normalized
/// separately, in any form: the beginning of a character that does not compose with one before it and that no mark
/// moves across. Returns the end of the text if there is none.
size_t normalization_cut(std::string_view text, size_t pos);
std::string lowercase_unicode(std::string_view text);
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

/// Append GPT-2's mapping of bytes to printable characters ("bytes_to_unicode": Radford et al. 2019, released code):
/// printable Latin-1 maps to itself, the other 68 bytes to U+0100 and up in order.
void append_byte_spelling(std::string& out, uint8_t byte);
std::string spell_bytes(std::string_view bytes);
/// Does the inverse of spell_bytes(). Returns false, and leaves `out` unchanged, if a character does not spell a byte.
bool unspell_bytes(std::string_view spelled, std::string& out);

}  // namespace redline
