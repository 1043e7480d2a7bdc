// The nearest name to a misspelled one: for flags, commands, types, models.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace redline {

/// Edit distance of `a` and `b`: insertions, deletions, substitutions and transpositions of adjacent characters,
/// ignoring case (restricted Damerau-Levenshtein). Cost: the product of the lengths.
int text_distance(std::string_view a, std::string_view b);

/// The likely intended candidate: the smallest distance, at most a third of the longer word or two edits; of equals the
/// one that begins most like `word` (q4_kk: Q4_K_M, not Q6_K; gemma4: gemma3), then the first. A candidate that starts
/// with `word` (three letters or more) counts as one edit. Without a likely one, the first candidate that starts with
/// `word`, else "".
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> candidates);

/// "; did you mean \"NAME\"?", or "" when no name is near. For the end of an error message.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

/// " (the nearest is NAME)", or "" when no name is near. For what is no slip but a kind that is not supported.
std::string the_nearest(std::string_view word, std::span<const std::string_view> candidates);
/// The same for candidates in one text: "NFC, NFD, Lowercase".
std::string the_nearest(std::string_view word, std::string_view candidates);

}  // namespace redline
