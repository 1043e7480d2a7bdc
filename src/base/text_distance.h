// Finds the nearest name to a misspelled one: for flags, commands, types, models.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace redline {

/// Returns the edit distance of `a` and `b`: insertions, deletions, substitutions and transpositions of adjacent
/// characters, ignoring case (restricted Damerau-Levenshtein). Cost: the product of the lengths.
int text_distance(std::string_view a, std::string_view b);

/// Returns the candidate that was probably meant: the one with the smallest distance, if that is at most a third of the
/// longer word or two edits. A candidate that starts with `word` (three letters or more) counts as one edit. Among
/// equally near candidates the one whose beginning is most like `word` wins (q4_kk: Q4_K_M, not Q6_K; gemma4: gemma3),
/// then the first. If no candidate is near, returns the first one that starts with `word`, else "".
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> candidates);

/// Returns `; did you mean "NAME"?`, or "" when no name is near. For the end of an error message.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

/// Returns " (the nearest is NAME)", or "" when no name is near. For unsupported kinds rather than misspellings.
std::string the_nearest(std::string_view word, std::span<const std::string_view> candidates);
/// Returns the same for candidates that are listed in one text, such as "NFC, NFD, Lowercase".
std::string the_nearest(std::string_view word, std::string_view candidates);

}  // namespace redline
