// Replaces numbers that Python writes but JSON does not have.
#pragma once

#include <string>
#include <string_view>

namespace redline {

/// Returns `text` with Infinity, -Infinity and NaN ("time_step_limit": [0.0, Infinity]) replaced by null. null means
/// the default, which is the same value in every such field of transformers' and diffusers' configs.
inline std::string without_infinities(std::string_view text) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\') {
      out += text.substr(i++, 2);
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    bool replaced = false;
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
      if (!in_string && !replaced && text.substr(i).starts_with(word)) {
        out += "null";
        i += word.size() - 1;
        replaced = true;
      }
    if (!replaced) out += text[i];
  }
  return out;
}

}  // namespace redline
