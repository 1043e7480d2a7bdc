#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace redline {
namespace {

struct ByteAlphabet {
  std::array<uint16_t, 256> char_of;
  std::array<int16_t, 0x144> byte_of;
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet = [] {
    ByteAlphabet a;
    a.byte_of.fill(-1);
    uint16_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      a.char_of[b] = printable ? static_cast<uint16_t>(b) : next++;
      a.byte_of[a.char_of[b]] = static_cast<int16_t>(b);
    }
    return a;
  }();
  return alphabet;
}

utf8proc_category_t category(uint32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

}  // namespace

size_t grapheme_bytes(std::string_view text, size_t pos) {
  const size_t begin = pos;
  Utf8Char last = utf8_at(text, pos);
  pos += last.bytes;
  utf8proc_int32_t state = 0;
  while (last.valid && pos < text.size()) {
    const Utf8Char c = utf8_at(text, pos);
    if (!c.valid || utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.value),
                                                     static_cast<utf8proc_int32_t>(c.value), &state))
      break;
    pos += c.bytes;
    last = c;
  }
  return pos - begin;
}

bool is_white_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(uint32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_decimal(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_punctuation(uint32_t c) {
  if (c < 0x80)
    return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) || (c >= 0x7B && c <= 0x7E);
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(uint32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }

bool is_other(uint32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_CN || k >= UTF8PROC_CATEGORY_CC;
}

bool is_word(uint32_t c) {
  const auto k = category(c);
  if (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) return true;  // L, M, Nd, Nl: in this order in utf8proc
  // Alphabetic beyond L, Nl and M: circled and squared Latin letters (PropList.txt, Other_Alphabetic).
  return k == UTF8PROC_CATEGORY_PC || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool is_regex_word(uint32_t c) { return is_word(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0xBC && c <= 0xBE); }

namespace {

/// Returns true for some of the characters that are their own NFC and compose with none before them: Latin, Cyrillic,
/// quotes and dashes, Han.
bool stands_for_itself(uint32_t c) {
  return c < 0x300 || (c >= 0x400 && c <= 0x482) || (c >= 0x2010 && c <= 0x205E) || (c >= 0x4E00 && c <= 0x9FFF);
}

/// Returns true for some of the characters of combining class 0 that compose with none before them, in any form:
/// besides the characters of stands_for_itself(), these are Arabic and Devanagari letters, kana, Hangul syllables,
/// emoji.
bool begins_anew(uint32_t c) {
  return stands_for_itself(c) || (c >= 0x5D0 && c <= 0x5EA) || (c >= 0x621 && c <= 0x64A) ||
         (c >= 0x904 && c <= 0x928) || (c >= 0x3041 && c <= 0x3096) || (c >= 0x30A1 && c <= 0x30FA) ||
         (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0x1F300 && c <= 0x1FAFF);
}

/// Returns true for a mark and for the two letters that decompose to a mark.
bool acts_as_mark(uint32_t c) { return is_mark(c) || c == 0xFF9E || c == 0xFF9F; }

/// Returns the decompositions of the marks in `marks`, in canonical order. It exists because utf8proc brings marks into
/// order by exchanging neighbors, which takes quadratic time.
std::string sorted_marks(std::string_view marks, int options) {
  struct Mark {
    utf8proc_int32_t value;
    utf8proc_propval_t order;
  };
  constexpr utf8proc_ssize_t kMaxApart = 32;  // most code points of one decomposition
  std::vector<Mark> found;
  for (size_t pos = 0; pos < marks.size();) {
    const Utf8Char c = utf8_at(marks, pos);
    pos += c.bytes;
    utf8proc_int32_t apart[kMaxApart];
    const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), apart, kMaxApart,
                                                           static_cast<utf8proc_option_t>(options), nullptr);
    for (utf8proc_ssize_t i = 0; i < std::min(count, kMaxApart); ++i)
      found.push_back({apart[i], utf8proc_get_property(apart[i])->combining_class});
  }
  const auto stays = [](const Mark& mark) { return mark.order == 0; };
  for (auto begin = found.begin(); begin != found.end();) {
    begin = std::find_if_not(begin, found.end(), stays);
    const auto end = std::find_if(begin, found.end(), stays);
    std::stable_sort(begin, end, [](const Mark& a, const Mark& b) { return a.order < b.order; });
    begin = end;
  }
  std::string sorted;
  for (const Mark& mark : found) append_utf8(sorted, static_cast<uint32_t>(mark.value));
  return sorted;
}

/// Returns `run` with its long runs of marks decomposed and in canonical order. The normal forms stay the same.
std::string with_sorted_marks(std::string_view run, int options) {
  constexpr size_t kLongRun = 32;  // number of marks from which a run is long
  std::string out;
  size_t done = 0;
  for (size_t pos = 0; pos < run.size();) {
    size_t count = 0;
    const size_t begin = pos;
    Utf8Char c;
    while (pos < run.size() && acts_as_mark((c = utf8_at(run, pos)).value)) {
      pos += c.bytes;
      ++count;
    }
    if (count >= kLongRun) {
      out.append(run.substr(done, begin - done)).append(sorted_marks(run.substr(begin, pos - begin), options));
      done = pos;
    }
    if (pos < run.size()) pos += c.bytes;
  }
  return out.append(run.substr(done));
}

}  // namespace

size_t normalization_cut(std::string_view text, size_t pos) {
  while (pos < text.size() && (static_cast<uint8_t>(text[pos]) & 0xC0) == 0x80) ++pos;
  while (pos < text.size()) {
    const Utf8Char c = utf8_at(text, pos);
    if (c.valid && begins_anew(c.value)) break;
    pos += c.bytes;
  }
  return pos;
}

std::string normalize_unicode(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);  // ASCII is its own normal form in every form
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  std::string out;
  out.reserve(text.size());
  const auto append = [&](std::string_view piece) {
    const std::string run = with_sorted_marks(piece, options & ~UTF8PROC_COMPOSE);
    utf8proc_uint8_t* made = nullptr;
    const utf8proc_ssize_t size =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(run.data()), static_cast<utf8proc_ssize_t>(run.size()),
                     &made, static_cast<utf8proc_option_t>(options));
    if (size < 0) {
      out.append(run);
    } else {
      out.append(reinterpret_cast<const char*>(made), static_cast<size_t>(size));
    }
    std::free(made);
  };
  const auto append_nfc = [&](std::string_view run) {
    size_t begin = 0;  // where the bytes begin that are not appended yet
    for (size_t pos = 0, last = 0; pos < run.size();) {
      if (const size_t end = end_of_ascii(run, pos); end > pos) {
        last = end - 1;
        pos = end;
        continue;
      }
      const Utf8Char c = utf8_at(run, pos);
      if (stands_for_itself(c.value)) {
        last = pos;
        pos += c.bytes;
        continue;
      }
      // This character may compose with the one before it. The part that is normalized begins there and ends at the
      // next character that stands for itself.
      out.append(run.substr(begin, last - begin));
      for (Utf8Char next = c; !stands_for_itself(next.value);) {
        pos += next.bytes;
        if (pos == run.size()) break;
        next = utf8_at(run, pos);
      }
      append(run.substr(last, pos - last));
      begin = last = pos;
    }
    out.append(run.substr(begin));
  };
  const auto normalize = [&](std::string_view run) { form == NormalForm::nfc ? append_nfc(run) : append(run); };
  for_each_utf8_run(text, [&](std::string_view run, bool valid) {
    if (!valid) {
      out.append(run);
      return;
    }
    // utf8proc drops U+11A7 after a Hangul syllable, as if it were a final consonant. Nothing composes with it, so the
    // text can be split before it.
    constexpr std::string_view kBeforeFinals = "\xE1\x86\xA7";
    for (size_t at; (at = run.find(kBeforeFinals, 1)) < run.size(); run.remove_prefix(at)) normalize(run.substr(0, at));
    if (!run.empty()) normalize(run);
  });
  return out;
}

std::string lowercase_unicode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    if (!c.valid) {
      out.append(text.substr(pos, c.bytes));
    } else if (c.value == 0x130) {
      out.append("i\xCC\x87");  // the only character with a longer full lowercase mapping (SpecialCasing.txt)
    } else {
      append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.value))));
    }
    pos += c.bytes;
  }
  return out;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  if (from.empty()) return std::string(text);
  out.reserve(text.size());
  size_t done = 0;
  for (size_t at; (at = text.find(from, done)) != std::string_view::npos; done = at + from.size()) {
    out.append(text.substr(done, at - done)).append(to);
  }
  return out.append(text.substr(done));
}

void append_byte_spelling(std::string& out, uint8_t byte) { append_utf8(out, byte_alphabet().char_of[byte]); }

std::string spell_bytes(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char b : bytes) append_byte_spelling(out, static_cast<uint8_t>(b));
  return out;
}

bool unspell_bytes(std::string_view spelled, std::string& out) {
  const auto& byte_of = byte_alphabet().byte_of;
  std::string bytes;
  bytes.reserve(spelled.size());
  for (size_t pos = 0; pos < spelled.size();) {
    const Utf8Char c = utf8_at(spelled, pos);
    if (!c.valid || c.value >= byte_of.size() || byte_of[c.value] < 0) return false;
    bytes.push_back(static_cast<char>(byte_of[c.value]));
    pos += c.bytes;
  }
  out = std::move(bytes);
  return true;
}

}  // namespace redline
