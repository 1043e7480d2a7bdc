// The flag --lora FILE[:WEIGHT].
#pragma once

#include <cstdlib>
#include <string>
#include <utility>

namespace redline::cli {

/// "style.safetensors:0.8" -> file and weight; 1 without a weight.
inline std::pair<std::string, double> parse_lora(const std::string& text) {
  const size_t colon = text.rfind(':');
  char* end = nullptr;
  if (colon == std::string::npos || colon + 1 == text.size()) return {text, 1};
  const double weight = std::strtod(text.c_str() + colon + 1, &end);
  return *end == 0 ? std::pair{text.substr(0, colon), weight} : std::pair{text, 1.0};
}

}  // namespace redline::cli
