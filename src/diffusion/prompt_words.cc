#include "diffusion/prompt_words.h"

#include <algorithm>

namespace redline {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Returns the words of ASCII letters, in lower case.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (is_letter(c)) words.back() += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    else if (!words.back().empty()) words.emplace_back();
  }
  return words;
}

}  // namespace

Result<PromptWords> PromptWords::parse(const nlohmann::json& json) {
  PromptWords words;
  const auto known = json.find("known"), draws = json.find("draws");
  if (known == json.end() || !known->is_array() || draws == json.end() || !draws->is_string())
    return invalid_argument("prompt_words must have the list \"known\" and the text \"draws\"");
  for (const nlohmann::json& word : *known) {
    if (!word.is_string()) return invalid_argument("prompt_words: \"known\" must be a list of words");
    words.known.push_back(word.get<std::string>());
  }
  words.draws = draws->get<std::string>();
  return words;
}

std::string PromptWords::warning(std::span<const std::string> prompts) const {
  if (known.empty()) return "";
  const auto is_known = [&](std::string word) {
    const auto is_listed = [&] { return std::find(known.begin(), known.end(), word) != known.end(); };
    if (is_listed()) return true;
    for (int plural = 0; plural < 2 && (word.ends_with('s') || word.ends_with('e')); ++plural) {  // houses, crosses
      word.pop_back();
      if (is_listed()) return true;
    }
    return false;
  };
  for (const std::string& prompt : prompts) {
    const std::vector<std::string> words = words_of(prompt);
    if (std::any_of(words.begin(), words.end(), is_known)) continue;
    return fmt::format("\"{}\" has no word that this small model was trained on; it draws {}", prompt, draws);
  }
  return "";
}

}  // namespace redline
