// The nearest name to a misspelled one: for flags, commands, types, models.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace redline {

/// Edit distance of `a` and `b`: insertions, deletions, substitutions and transpositions of adjacent characters,
/// ignoring case (restricted Damerau-Levenshtein). Cost: the product of the lengths.
int text_distance(std::string_view a, std::string_view b);

/// The likely intended candidate: the smallest distance, the first of equals, at most a third of the longer word or two
/// edits. A candidate that starts with `word` (three letters or more) counts as one edit. Without a likely one, the
/// first candidate that starts with `word`, else "".
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> candidates);

/// "; did you mean \"NAME\"?", or "" when no name is near. For the end of an error message.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace redline
