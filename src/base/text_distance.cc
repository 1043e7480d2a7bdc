#include "base/text_distance.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/error.h"

namespace redline {
namespace {

// Maximum length of a word that is compared with the known names: a longer word is not a typo of one.
constexpr size_t kLongestWord = 256;

/// Returns the length of the common beginning, and the difference of the first characters that are unequal: {5, 1} for
/// gemma4 and gemma3.
std::pair<size_t, int> beginnings(std::string_view a, std::string_view b) {
  size_t same = 0;
  while (same < std::min(a.size(), b.size()) && ascii_lower(a[same]) == ascii_lower(b[same])) ++same;
  const bool is_end = same == std::min(a.size(), b.size());
  return {same, is_end ? 0 : std::abs(ascii_lower(a[same]) - ascii_lower(b[same]))};
}

/// Returns true if `a` begins more like `word` than `b` does.
bool begins_nearer(std::string_view word, std::string_view a, std::string_view b) {
  const auto [same_a, step_a] = beginnings(word, a);
  const auto [same_b, step_b] = beginnings(word, b);
  return same_a != same_b ? same_a > same_b : step_a < step_b;
}

}  // namespace

int text_distance(std::string_view a, std::string_view b) {
  // Three rows of the table: a transposition looks back two rows.
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int differs = ascii_lower(a[i - 1]) != ascii_lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + differs});
      const bool swapped = i > 1 && j > 1 && ascii_lower(a[i - 1]) == ascii_lower(b[j - 2]) &&
                           ascii_lower(a[i - 2]) == ascii_lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string_view nearest_name(std::string_view word, std::span<const std::string_view> candidates) {
  if (word.empty() || word.size() > kLongestWord) return {};
  std::string_view best, completion;
  int best_distance = 0;
  for (std::string_view candidate : candidates) {
    const bool is_completed = beginnings(word, candidate).first == word.size();
    const size_t longer = std::max(word.size(), candidate.size()), shorter = std::min(word.size(), candidate.size());
    const int allowed = std::max<int>(2, static_cast<int>(longer) / 3);
    // The distance is at least the difference in length: most candidates need no table.
    const bool may_be_near = longer - shorter <= static_cast<size_t>(allowed);
    if (!may_be_near && !is_completed) continue;
    int distance = may_be_near ? text_distance(word, candidate) : static_cast<int>(longer);
    constexpr size_t kTellingStart = 3;  // --temp is --temperature, not --help
    if (is_completed && word.size() >= kTellingStart) distance = std::min(distance, 1);
    // Two edits turn any two-letter name into any other.
    const bool shares_something = distance < static_cast<int>(longer);
    const bool is_nearer =
        best.empty() || distance < best_distance || (distance == best_distance && begins_nearer(word, candidate, best));
    if (distance <= allowed && shares_something && is_nearer) {
      best = candidate;
      best_distance = distance;
    }
    if (completion.empty() && is_completed) completion = candidate;
  }
  return best.empty() ? completion : best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string_view name = nearest_name(word, candidates);
  return name.empty() ? std::string() : fmt::format("; did you mean \"{}\"?", name);
}

std::string the_nearest(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string_view name = nearest_name(word, candidates);
  return name.empty() ? std::string() : fmt::format(" (the nearest is {})", name);
}

std::string the_nearest(std::string_view word, std::string_view candidates) {
  std::vector<std::string_view> names;
  for (size_t begin = 0; begin < candidates.size();) {
    const size_t end = std::min(candidates.find(", ", begin), candidates.size());
    names.push_back(candidates.substr(begin, end - begin));
    begin = end + 2;
  }
  return the_nearest(word, names);
}

}  // namespace redline
