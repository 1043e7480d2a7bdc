#include "text/pre_tokenizer.h"

#include <algorithm>

#include "text/unicode.h"

namespace redline {
namespace {

struct Cut {
  size_t begin, end;
  bool match;
};

/// Matches of the step's pattern and the gaps between them, in order.
void find_cuts(const SplitStep& step, std::string_view text, std::vector<Cut>& cuts) {
  size_t done = 0;
  const auto add_match = [&](size_t begin, size_t end) {
    if (begin > done) cuts.push_back({done, begin, step.invert});
    cuts.push_back({begin, end, !step.invert});
    done = end;
  };
  if (const auto* regex = std::get_if<Regex>(&step.pattern)) {
    thread_local std::vector<Regex::Span> matches;
    matches.clear();
    regex->find_all(text, matches);
    for (const Regex::Span& m : matches) add_match(m.begin, m.end);
  } else if (const auto* literal = std::get_if<std::string>(&step.pattern)) {
    for (size_t at = 0; !literal->empty() && (at = text.find(*literal, at)) != std::string_view::npos;
         at += literal->size()) {
      add_match(at, at + literal->size());
    }
  } else {
    const auto test = std::get<SplitStep::CharTest>(step.pattern);
    for (size_t pos = 0; pos < text.size();) {
      const Utf8Char c = utf8_at(text, pos);
      if (c.valid && test(c.value)) add_match(pos, pos + c.bytes);
      pos += c.bytes;
    }
  }
  if (done < text.size()) cuts.push_back({done, text.size(), step.invert});
}

/// Joins and drops cuts according to the behavior.
void settle_cuts(SplitBehavior behavior, std::vector<Cut>& cuts) {
  std::vector<Cut> kept;
  bool last_match = false;
  switch (behavior) {
    case SplitBehavior::isolated: return;
    case SplitBehavior::removed: std::erase_if(cuts, [](const Cut& c) { return c.match; }); return;
    case SplitBehavior::contiguous:
      for (const Cut& c : cuts) {
        if (!kept.empty() && c.match == last_match) {
          kept.back().end = c.end;
        } else {
          kept.push_back(c);
        }
        last_match = c.match;
      }
      break;
    case SplitBehavior::merged_with_previous:
      for (const Cut& c : cuts) {
        if (c.match && !last_match && !kept.empty()) {
          kept.back().end = c.end;
        } else {
          kept.push_back(c);
        }
        last_match = c.match;
      }
      break;
    case SplitBehavior::merged_with_next:
      for (auto c = cuts.rbegin(); c != cuts.rend(); ++c) {
        if (c->match && !last_match && !kept.empty()) {
          kept.back().begin = c->begin;
        } else {
          kept.push_back(*c);
        }
        last_match = c->match;
      }
      std::reverse(kept.begin(), kept.end());
      break;
  }
  cuts.swap(kept);
}

void apply_step(const SplitStep& step, Pieces& pieces) {
  std::vector<Pieces::Span> spans;
  std::vector<Cut> cuts;
  spans.reserve(pieces.spans.size() * 2);
  const bool first_kept_start = pieces.at_start;
  for (size_t i = 0; i < pieces.spans.size(); ++i) {
    const Pieces::Span span = pieces.spans[i];
    cuts.clear();
    find_cuts(step, pieces.view(span), cuts);
    settle_cuts(step.behavior, cuts);
    for (const Cut& c : cuts) {
      if (c.end > c.begin) spans.push_back({span.begin + c.begin, c.end - c.begin});
    }
  }
  pieces.at_start =
      first_kept_start && !spans.empty() && !pieces.spans.empty() && spans[0].begin == pieces.spans[0].begin;
  pieces.spans.swap(spans);
}

/// Rebuilds the text piece by piece: rewrite(piece, index, out) appends the new form of the piece.
template <class Rewrite>
void rewrite_pieces(Pieces& pieces, Rewrite&& rewrite) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 2);
  for (size_t i = 0; i < pieces.spans.size(); ++i) {
    const size_t begin = text.size();
    rewrite(pieces.view(pieces.spans[i]), i, text);
    pieces.spans[i] = {begin, text.size() - begin};
  }
  pieces.text.swap(text);
}

void apply_step(const PrefixSpaceStep&, Pieces& pieces) {
  rewrite_pieces(pieces, [](std::string_view piece, size_t, std::string& out) {
    if (piece.front() != ' ') out += ' ';
    out += piece;
  });
}

void apply_step(const ByteLevelStep&, Pieces& pieces) {
  rewrite_pieces(pieces, [](std::string_view piece, size_t, std::string& out) {
    for (const char b : piece) append_byte_spelling(out, static_cast<uint8_t>(b));
  });
}

void apply_step(const MetaspaceStep& step, Pieces& pieces) {
  rewrite_pieces(pieces, [&](std::string_view piece, size_t i, std::string& out) {
    const bool wanted = step.prepend == MetaspaceStep::Prepend::always ||
                        (step.prepend == MetaspaceStep::Prepend::first && i == 0 && pieces.at_start);
    if (wanted && piece.front() != ' ' && !piece.starts_with(step.replacement)) out += step.replacement;
    for (const char c : piece) {
      if (c == ' ') {
        out += step.replacement;
      } else {
        out += c;
      }
    }
  });
  if (step.split) apply_step(SplitStep{step.replacement, SplitBehavior::merged_with_next, false}, pieces);
}

void apply_step(const FixedLengthStep& step, Pieces& pieces) {
  std::vector<Pieces::Span> spans;
  for (const Pieces::Span span : pieces.spans) {
    const std::string_view text = pieces.view(span);
    size_t begin = 0, pos = 0;
    for (int64_t chars = 1; pos < text.size(); ++chars) {
      pos += utf8_at(text, pos).bytes;
      if (chars % step.length != 0 && pos < text.size()) continue;
      spans.push_back({span.begin + begin, pos - begin});
      begin = pos;
    }
  }
  pieces.spans.swap(spans);
}

void apply_step(const DigitGroupsStep& step, Pieces& pieces) {
  using Kind = DigitGroupsStep::Kind;
  const auto is_digit = step.kind == Kind::numeric ? is_numeric : is_decimal;
  std::vector<Pieces::Span> spans;
  std::vector<size_t> starts;  // of the digits of one run
  for (const Pieces::Span span : pieces.spans) {
    const std::string_view text = pieces.view(span);
    size_t done = 0;
    const auto cut = [&](size_t at) {
      if (at > done) spans.push_back({span.begin + done, at - done});
      done = at;
    };
    for (size_t pos = 0; pos < text.size();) {
      starts.clear();
      Utf8Char c;
      while (pos < text.size() && (c = utf8_at(text, pos)).valid && is_digit(c.value)) {
        starts.push_back(pos);
        pos += c.bytes;
      }
      if (starts.empty()) {
        pos += c.bytes;
        continue;
      }
      if (step.kind == Kind::decimal_words && pos < text.size() && c.valid && is_regex_word(c.value)) continue;
      if (step.kind != Kind::decimal_cuts) cut(starts.front());
      for (size_t i = starts.size() % 3; i < starts.size(); i += 3) cut(starts[i]);
      if (step.kind != Kind::decimal_cuts) cut(pos);
    }
    cut(text.size());
  }
  pieces.spans.swap(spans);
}

}  // namespace

bool PreTokenizer::splits_bytes() const {
  if (steps_.empty() || !std::holds_alternative<ByteLevelStep>(steps_.back())) return false;
  return std::all_of(steps_.begin(), steps_.end() - 1, [](const PreTokenizerStep& step) {
    return std::holds_alternative<SplitStep>(step) || std::holds_alternative<DigitGroupsStep>(step);
  });
}

void PreTokenizer::split(Pieces& pieces) const {
  for (size_t i = 0; i + 1 < steps_.size(); ++i) std::visit([&](const auto& s) { apply_step(s, pieces); }, steps_[i]);
}

const Regex* PreTokenizer::only_regex() const {
  if (steps_.size() != 2 || !splits_bytes()) return nullptr;
  const auto* step = std::get_if<SplitStep>(&steps_[0]);
  const bool cuts = step != nullptr && step->behavior == SplitBehavior::isolated && !step->invert;
  return cuts ? std::get_if<Regex>(&step->pattern) : nullptr;
}

void PreTokenizer::apply(Pieces& pieces) const {
  for (const PreTokenizerStep& step : steps_) {
    std::visit([&](const auto& s) { apply_step(s, pieces); }, step);
  }
}

}  // namespace redline
