#include "text/pre_tokenizer.h"

#include <algorithm>

#include "text/unicode.h"

namespace redline {
namespace {

struct Cut {
  size_t begin, end;
  bool match;
};

/// Calls take(cut) for the matches of the step's pattern and the gaps between them, in order, until it returns false.
template <class Take>
void find_cuts(const SplitStep& step, std::string_view text, const Take& take) {
  size_t done = 0;
  const auto take_match = [&](size_t begin, size_t end) {
    if (begin > done && !take({done, begin, step.invert})) return false;
    done = end;
    return take({begin, end, !step.invert});
  };
  bool goes_on = true;
  if (const auto* regex = std::get_if<Regex>(&step.pattern)) {
    regex->for_each(text, [&](Regex::Span m) { return goes_on = take_match(m.begin, m.end); });
  } else if (const auto* literal = std::get_if<std::string>(&step.pattern)) {
    for (size_t at = 0; goes_on && !literal->empty() && (at = text.find(*literal, at)) != std::string_view::npos;
         at += literal->size())
      goes_on = take_match(at, at + literal->size());
  } else {
    const auto test = std::get<SplitStep::CharTest>(step.pattern);
    for (size_t pos = 0; goes_on && pos < text.size();) {
      const Utf8Char c = utf8_at(text, pos);
      if (c.valid && test(c.value)) goes_on = take_match(pos, pos + c.bytes);
      pos += c.bytes;
    }
  }
  if (goes_on && done < text.size()) take({done, text.size(), step.invert});
}

/// Joins and drops cuts as the split behavior says. It holds back one cut, which the next one may join.
template <class Give>
class CutJoiner {
 public:
  CutJoiner(SplitBehavior behavior, const Give& give) : behavior_(behavior), give_(give) {}
  bool take(Cut c) {
    switch (behavior_) {
      case SplitBehavior::isolated: return give_(c);
      case SplitBehavior::removed: return c.match || give_(c);
      case SplitBehavior::contiguous: return join_if(held_ && c.match == last_match_, c);
      case SplitBehavior::merged_with_previous: return join_if(held_ && c.match && !last_match_, c);
      case SplitBehavior::merged_with_next: return join_if(held_ && last_match_ && !c.match, c);
    }
    return false;
  }
  bool finish() { return !held_ || give_(*held_); }

 private:
  bool join_if(bool joins, Cut c) {
    last_match_ = c.match;
    if (joins) {
      held_->end = c.end;
      return true;
    }
    const bool goes_on = finish();
    held_ = c;
    return goes_on;
  }
  const SplitBehavior behavior_;
  const Give& give_;
  std::optional<Cut> held_;
  bool last_match_ = false;
};

/// Applies the steps to one text, depth first: the pieces of a step are passed through the following steps one by one.
class Run {
 public:
  Run(const std::vector<PreTokenizerStep>& steps, size_t count, EncodeWork& work, const PreTokenizer::OnPiece& on_piece)
      : steps_(steps), count_(count), work_(work), on_piece_(on_piece), rewritten_(count) {}

  /// Applies the steps from `index` on. Returns false if on_piece has ended the run.
  bool apply(size_t index, std::string_view piece, bool at_start) {
    if (piece.empty()) return true;
    if (index == count_) return on_piece_(piece);
    return std::visit([&](const auto& step) { return apply(step, index, piece, at_start); }, steps_[index]);
  }

 private:
  bool apply(const SplitStep& step, size_t index, std::string_view text, bool at_start) {
    bool goes_on = true, is_first = true;
    const auto give = [&](Cut c) {
      if (c.end == c.begin) return true;
      goes_on = apply(index + 1, text.substr(c.begin, c.end - c.begin), at_start && is_first && c.begin == 0);
      is_first = false;
      return goes_on;
    };
    CutJoiner joiner(step.behavior, give);
    find_cuts(step, text, [&](Cut c) {
      if (index == 0 && !work_.add(c.end - c.begin)) return goes_on = false;
      return joiner.take(c);
    });
    return goes_on && joiner.finish();
  }
  bool apply(const PrefixSpaceStep&, size_t index, std::string_view piece, bool at_start) {
    if (piece.front() == ' ') return apply(index + 1, piece, at_start);
    return apply(index + 1, rewritten_[index].assign(" ").append(piece), at_start);
  }
  bool apply(const ByteLevelStep&, size_t index, std::string_view piece, bool at_start) {
    std::string& out = rewritten_[index];
    out.clear();
    for (const char b : piece) append_byte_spelling(out, static_cast<uint8_t>(b));
    return apply(index + 1, out, at_start);
  }
  bool apply(const MetaspaceStep& step, size_t index, std::string_view piece, bool at_start) {
    std::string& out = rewritten_[index];
    out.clear();
    const bool wanted =
        step.prepend == MetaspaceStep::Prepend::always || (step.prepend == MetaspaceStep::Prepend::first && at_start);
    if (wanted && piece.front() != ' ' && !piece.starts_with(step.replacement)) out += step.replacement;
    for (const char c : piece) {
      if (c == ' ') out += step.replacement;
      else out += c;
    }
    if (!step.split) return apply(index + 1, out, at_start);
    return apply(SplitStep{step.replacement, SplitBehavior::merged_with_next, false}, index, out, at_start);
  }
  bool apply(const FixedLengthStep& step, size_t index, std::string_view text, bool at_start) {
    size_t begin = 0, pos = 0;
    for (int64_t chars = 1; pos < text.size(); ++chars) {
      pos += utf8_at(text, pos).bytes;
      if (chars % step.length != 0 && pos < text.size()) continue;
      if (!apply(index + 1, text.substr(begin, pos - begin), at_start && begin == 0)) return false;
      begin = pos;
    }
    return true;
  }
  bool apply(const DigitGroupsStep& step, size_t index, std::string_view text, bool at_start) {
    using Kind = DigitGroupsStep::Kind;
    const auto is_digit = step.kind == Kind::numeric ? is_numeric : is_decimal;
    size_t done = 0;
    const auto cut = [&](size_t at) {
      const size_t begin = done;
      done = std::max(done, at);
      return at <= begin || apply(index + 1, text.substr(begin, at - begin), at_start && begin == 0);
    };
    for (size_t pos = 0; pos < text.size();) {
      const size_t first = pos;
      size_t digits = 0;  // length of the run of digits that begins here
      Utf8Char c;
      for (; pos < text.size() && (c = utf8_at(text, pos)).valid && is_digit(c.value); pos += c.bytes) ++digits;
      if (digits == 0) {
        pos += c.bytes;
        continue;
      }
      if (step.kind == Kind::decimal_words && pos < text.size() && c.valid && is_regex_word(c.value)) continue;
      if (step.kind != Kind::decimal_cuts && !cut(first)) return false;
      size_t at = first;
      for (size_t left = digits; at < pos; at += utf8_at(text, at).bytes, --left)
        if (left % 3 == 0 && !cut(at)) return false;
      if (step.kind != Kind::decimal_cuts && !cut(pos)) return false;
    }
    return cut(text.size());
  }

  const std::vector<PreTokenizerStep>& steps_;
  const size_t count_;
  EncodeWork& work_;
  const PreTokenizer::OnPiece& on_piece_;
  std::vector<std::string> rewritten_;  ///< the rewritten piece of each step that rewrites pieces, by step
};

}  // namespace

bool PreTokenizer::splits_bytes() const {
  if (steps_.empty() || !std::holds_alternative<ByteLevelStep>(steps_.back())) return false;
  return std::all_of(steps_.begin(), steps_.end() - 1, [](const PreTokenizerStep& step) {
    return std::holds_alternative<SplitStep>(step) || std::holds_alternative<DigitGroupsStep>(step);
  });
}

bool PreTokenizer::split(std::string_view text, EncodeWork& work, const OnPiece& on_piece) const {
  return Run(steps_, steps_.size() - 1, work, on_piece).apply(0, text, false);
}

bool PreTokenizer::keeps_text() const {
  return std::none_of(steps_.begin(), steps_.end(), [](const PreTokenizerStep& step) {
    const auto* split = std::get_if<SplitStep>(&step);
    return split != nullptr && split->behavior == SplitBehavior::removed;
  });
}

const Regex* PreTokenizer::only_regex() const {
  if (steps_.size() != 2 || !splits_bytes()) return nullptr;
  const auto* step = std::get_if<SplitStep>(&steps_[0]);
  const bool cuts = step != nullptr && step->behavior == SplitBehavior::isolated && !step->invert;
  return cuts ? std::get_if<Regex>(&step->pattern) : nullptr;
}

bool PreTokenizer::apply(std::string_view text, bool at_start, EncodeWork& work, const OnPiece& on_piece) const {
  return Run(steps_, steps_.size(), work, on_piece).apply(0, text, at_start);
}

}  // namespace redline
