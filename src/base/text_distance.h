// The nearest name to a mistyped one: for flags, commands, types, models.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace redline {

/// Edits that turn `a` into `b`: insertions, deletions, substitutions and swaps of neighbours, without regard to case
/// (Damerau-Levenshtein in the restricted form). Cost: the product of the lengths.
int text_distance(std::string_view a, std::string_view b);

/// The candidate with the smallest distance, the first of equals; "" when none is close enough to be a likely slip
/// (more than a third of the longer word, at least two edits, differs) and none begins with `word`. One that begins
/// with three letters or more of a `word` counts as one edit away.
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> candidates);

/// "; did you mean \"NAME\"?" or "" when nothing is near: the end of an error message.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace redline
