#include "text/normalizer.h"

#include <cstring>

namespace redline {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

std::string strip_space(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const Utf8Char c = utf8_at(text, 0);
    if (!c.valid || !is_white_space(c.value)) break;
    text.remove_prefix(c.bytes);
  }
  while (right && !text.empty()) {
    size_t bytes = 1;
    while (bytes < 4 && bytes < text.size() && (static_cast<uint8_t>(text[text.size() - bytes]) & 0xC0) == 0x80)
      ++bytes;
    const Utf8Char c = utf8_at(text, text.size() - bytes);
    if (!c.valid || c.bytes != bytes || !is_white_space(c.value)) break;
    text.remove_suffix(bytes);
  }
  return std::string(text);
}

/// Calls append(part) for parts of the text that next_cut(text, pos) separates.
template <class NextCut, class Append>
void in_slices(std::string_view text, EncodeWork& work, const NextCut& next_cut, const Append& append) {
  constexpr size_t kSlice = size_t{1} << 14;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = text.size() - pos > kSlice ? next_cut(text, pos + kSlice) : text.size();
    append(text.substr(pos, end - pos));
    if (!work.add(end - pos)) return;
    pos = end;
  }
}

std::string normalize_in_slices(std::string_view text, NormalForm form, EncodeWork& work) {
  std::string out;
  out.reserve(text.size());
  in_slices(text, work, normalization_cut, [&](std::string_view part) { out += normalize_unicode(part, form); });
  return out;
}

std::string lowercase_in_slices(std::string_view text, EncodeWork& work) {
  const auto next_char = [](std::string_view all, size_t pos) {
    while (pos < all.size() && (static_cast<uint8_t>(all[pos]) & 0xC0) == 0x80) ++pos;
    return pos;
  };
  std::string out;
  out.reserve(text.size());
  in_slices(text, work, next_char, [&](std::string_view part) { out += lowercase_unicode(part); });
  return out;
}

std::string strip_accents(std::string_view text, EncodeWork& work) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    if (!work.add(c.bytes)) break;
    if (!c.valid || !is_mark(c.value)) out.append(text.substr(pos, c.bytes));
    pos += c.bytes;
  }
  return out;
}

/// Returns true for CJK ideographs, in the ranges of the tokenizers package.
bool is_chinese(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

std::string bert_normalize(const BertNormalize& n, std::string_view text, EncodeWork& work) {
  constexpr uint32_t kReplacement = 0xFFFD;
  const auto is_space = [](uint32_t c) { return c == '\t' || c == '\n' || c == '\r'; };
  std::string now;
  now.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    const std::string_view bytes = text.substr(pos, c.bytes);
    pos += c.bytes;
    if (!work.add(c.bytes)) return now;
    if (n.cleans && (c.value == 0 || c.value == kReplacement || (!is_space(c.value) && is_other(c.value)))) continue;
    if (n.cleans && (is_space(c.value) || is_white_space(c.value))) now += ' ';
    else if (n.separates_chinese && is_chinese(c.value)) now.append(" ").append(bytes).append(" ");
    else now += bytes;
  }
  if (n.strips_accents) {
    const std::string apart = normalize_in_slices(now, NormalForm::nfd, work);
    now.clear();
    for (size_t pos = 0; pos < apart.size();) {
      const Utf8Char c = utf8_at(apart, pos);
      if (!work.add(c.bytes)) return now;
      if (!c.valid || !is_nonspacing(c.value)) now.append(apart, pos, c.bytes);
      pos += c.bytes;
    }
  }
  return n.lowercases ? lowercase_in_slices(now, work) : now;
}

std::string clean_controls(std::string_view text, EncodeWork& work) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    if (!work.add(c.bytes)) break;
    const uint32_t v = c.valid ? c.value : 0;
    const bool is_space = v == 0x9 || v == 0xA || v == 0xC || v == 0xD || v == 0x1680 || (v >= 0x200B && v <= 0x200F) ||
                          v == 0x2028 || v == 0x2029 || v == 0x2581 || v == 0xFEFF || v == 0xFFFD;
    const bool is_control =
        (v >= 0x1 && v <= 0x8) || v == 0xB || (v >= 0xE && v <= 0x1F) || v == 0x7F || v == 0x8F || v == 0x9F;
    if (is_space) out += ' ';
    else if (!is_control) out.append(text.substr(pos, c.bytes));
    pos += c.bytes;
  }
  return out;
}

}  // namespace

std::string replace_regex(std::string_view text, const Regex& from, std::string_view to) {
  EncodeWork work;
  return replace_regex(text, from, to, work);
}

std::string replace_regex(std::string_view text, const Regex& from, std::string_view to, EncodeWork& work) {
  std::string out;
  size_t done = 0;
  from.for_each(text, [&](Regex::Span m) {
    out.append(text.substr(done, m.begin - done)).append(to);
    const bool goes_on = work.add(m.end - done);
    done = m.end;
    return goes_on;
  });
  return out.append(text.substr(done));
}

namespace {

std::string replace_text(std::string_view text, std::string_view from, std::string_view to, EncodeWork& work) {
  std::string out;
  if (from.empty()) return std::string(text);
  out.reserve(text.size());
  size_t done = 0;
  for (size_t at; (at = text.find(from, done)) != std::string_view::npos; done = at + from.size()) {
    out.append(text.substr(done, at - done)).append(to);
    if (!work.add(at + from.size() - done)) return out;
  }
  return out.append(text.substr(done));
}

std::string apply_map(const CharsMap& map, std::string_view text, EncodeWork& work) {
  constexpr size_t kMaxBytes = 5;  // longest grapheme cluster that is looked up as a whole
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const std::string_view cluster = text.substr(pos, grapheme_bytes(text, pos));
    pos += cluster.size();
    if (!work.add(cluster.size())) break;
    if (cluster.size() <= kMaxBytes) {
      if (const CharsMap::Match whole = map.shortest_at(cluster, 0); whole.bytes > 0) {
        out.append(whole.replacement);
        continue;
      }
    }
    for (size_t at = 0; at < cluster.size();) {
      const std::string_view c = cluster.substr(at, utf8_at(cluster, at).bytes);
      const CharsMap::Match match = map.shortest_at(c, 0);
      out.append(match.bytes > 0 ? match.replacement : c);
      at += c.size();
    }
  }
  return out;
}

std::string sentencepiece_normalize(const SentencePieceNormalize& n, std::string_view text, bool at_start,
                                    EncodeWork& work) {
  const std::string_view space = n.escape_whitespaces ? kSpaceMark : std::string_view(" ");
  // Processes the text in units: a user-defined piece (unchanged), a match of the map, or one character.
  size_t pos = 0;
  const auto next_chunk = [&]() -> std::string_view {
    const size_t begin = pos;
    if (n.untouched) {
      const PrefixMatcher::Match keep = n.untouched->longest_at(text, pos);
      if (keep.value >= 0) {
        pos += keep.bytes;
        return text.substr(begin, keep.bytes);
      }
    }
    if (n.map) {
      const CharsMap::Match match = n.map->longest_at(text, pos);
      if (match.bytes > 0) {
        pos += match.bytes;
        return match.replacement;
      }
    }
    pos += utf8_at(text, pos).bytes;
    return text.substr(begin, pos - begin);
  };
  // Only U+0020 is a space here; the map has already converted the other kinds.
  std::string out;
  out.reserve(text.size() + 8);
  bool begun = false;
  bool after_space = true;
  while (pos < text.size()) {
    const size_t begin = pos;
    std::string_view chunk = next_chunk();
    if (!work.add(pos - begin)) break;
    if (!begun) {
      if (n.remove_extra_whitespaces && chunk == " ") continue;
      if (n.add_dummy_prefix && (at_start || !n.dummy_prefix_at_start_only)) out.append(space);
      begun = true;
    }
    while (n.remove_extra_whitespaces && after_space && chunk.starts_with(' ')) chunk.remove_prefix(1);
    if (chunk.empty()) continue;
    for (const char c : chunk) {
      if (c == ' ') {
        out.append(space);
      } else {
        out.push_back(c);
      }
    }
    after_space = chunk.back() == ' ';
  }
  while (n.remove_extra_whitespaces && out.ends_with(space)) out.resize(out.size() - space.size());
  return out;
}

}  // namespace

Result<CharsMap> CharsMap::parse(std::string_view blob) {
  uint32_t trie_bytes = 0;
  if (blob.size() < sizeof(trie_bytes))
    return invalid_argument("precompiled_charsmap has {} bytes, at least 4 are needed", blob.size());
  std::memcpy(&trie_bytes, blob.data(), sizeof(trie_bytes));
  if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > blob.size() - 4) {
    return invalid_argument("precompiled_charsmap: a trie of {} bytes in {} bytes", trie_bytes, blob.size() - 4);
  }
  CharsMap map;
  map.units_.resize(trie_bytes / 4);
  std::memcpy(map.units_.data(), blob.data() + 4, trie_bytes);
  map.replacements_ = blob.substr(4 + trie_bytes);
  map.replacements_.push_back('\0');
  return map;
}

CharsMap::Match CharsMap::match_at(std::string_view text, size_t pos, bool longest) const {
  // The units of the double array have these bits: bits 0-7 are the label together with bit 31 (set in leaves), bit 8
  // means "has a leaf", bits 10-30 are the offset to the children, multiplied by 256 when bit 9 is set; a leaf stores
  // its value in bits 0-30.
  const auto offset = [](uint32_t unit) -> size_t { return (unit >> 10) << ((unit & (1u << 9)) >> 6); };
  Match best;
  size_t node = offset(units_[0]);
  for (size_t i = pos; i < text.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    if (byte == 0) break;  // 0 is the label of leaves
    node ^= byte;
    if (node >= units_.size()) break;
    const uint32_t unit = units_[node];
    if ((unit & (0x80000000u | 0xFF)) != byte) break;
    node ^= offset(unit);
    if ((unit >> 8) & 1) {
      if (node >= units_.size()) break;
      const size_t value = units_[node] & 0x7FFFFFFFu;
      if (value >= replacements_.size()) break;
      best = {i + 1 - pos, std::string_view(replacements_.c_str() + value)};
      if (!longest) break;
    }
  }
  return best;
}

std::string Normalizer::apply(std::string_view text, bool at_start, EncodeWork& work) const {
  if (steps_.empty()) return std::string(text);
  std::string made;
  std::string_view now = text;  // then a view of `made`
  for (const NormalizerStep& step : steps_) {
    made =
        std::visit(Overloaded{
                       [&](const NormalizeForm& s) { return normalize_in_slices(now, s.form, work); },
                       [&](const Lowercase&) { return lowercase_in_slices(now, work); },
                       [&](const StripSpace& s) { return strip_space(now, s.left, s.right); },
                       [&](const StripAccents&) { return strip_accents(now, work); },
                       [&](const BertNormalize& s) { return bert_normalize(s, now, work); },
                       [&](const ReplaceText& s) { return replace_text(now, s.from, s.to, work); },
                       [&](const ReplaceRegex& s) { return replace_regex(now, s.from, s.to, work); },
                       [&](const PrependText& s) { return now.empty() ? std::string() : s.prefix + std::string(now); },
                       [&](const CleanControls&) { return clean_controls(now, work); },
                       [&](const SpellBytes&) { return spell_bytes(now); },
                       [&](const PrecompiledMap& s) { return apply_map(*s.map, now, work); },
                       [&](const SentencePieceNormalize& s) { return sentencepiece_normalize(s, now, at_start, work); },
                   },
                   step);
    now = made;
    if (work.is_stopped()) break;
  }
  return made;
}

int64_t Normalizer::max_shrink() const {
  // Three bytes of a decomposed character may become one (U+212B), and a composed character has up to four parts.
  constexpr int64_t kForms = 16, kLowercase = 3;
  int64_t shrink = 1;
  for (const NormalizerStep& step : steps_)
    shrink *= std::visit(
        Overloaded{
            [](const NormalizeForm&) { return kForms; }, [](const Lowercase&) { return kLowercase; },
            [](const ReplaceText& s) -> int64_t {
              if (s.to.size() >= s.from.size()) return 1;
              return s.to.empty() ? 0 : std::ssize(s.from) / std::ssize(s.to) + 1;
            },
            [](const PrependText&) { return int64_t{1}; }, [](const SpellBytes&) { return int64_t{1}; },
            [](const SentencePieceNormalize& s) { return int64_t{s.map || s.remove_extra_whitespaces ? 0 : 1}; },
            [](const auto&) { return int64_t{0}; },  // the other steps may remove characters: no limit
        },
        step);
  return shrink;
}

}  // namespace redline
