#include "llm/stop_strings.h"

#include <algorithm>
#include <utility>

namespace redline {
namespace {

/// Offset of the first byte that breaks UTF-8 (RFC 3629), or the size.
size_t first_invalid_utf8(std::string_view s) {
  size_t i = 0;
  while (i < s.size()) {
    const auto lead = static_cast<unsigned char>(s[i]);
    const size_t length = lead < 0x80                    ? 1
                          : lead >= 0xC2 && lead <= 0xDF ? 2
                          : lead >= 0xE0 && lead <= 0xEF ? 3
                          : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                         : 0;
    if (length == 0 || i + length > s.size()) return i;
    for (size_t k = 1; k < length; ++k) {
      const auto byte = static_cast<unsigned char>(s[i + k]);
      const unsigned low = k > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
      const unsigned high = k > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
      if (byte < low || byte > high) return i;
    }
    i += length;
  }
  return i;
}

}  // namespace

Result<StopStrings> StopStrings::create(std::vector<std::string> stops) {
  StopStrings result;
  for (size_t i = 0; i < stops.size(); ++i) {
    std::string& text = stops[i];
    if (text.empty()) return invalid_argument("stop string {} is empty: it would end every text at once", i + 1);
    if (const size_t bad = first_invalid_utf8(text); bad != text.size())
      return invalid_argument("stop string {} is not UTF-8 (byte {} of {})", i + 1, bad, text.size());
    std::vector<size_t> fallback(text.size(), 0);
    for (size_t n = 1, length = 0; n < text.size(); ++n) {
      while (length > 0 && text[n] != text[length]) length = fallback[length - 1];
      if (text[n] == text[length]) ++length;
      fallback[n] = length;
    }
    result.stops_.push_back({std::move(text), std::move(fallback), 0});
  }
  return result;
}

std::string StopStrings::push(std::string_view text) {
  if (found()) return {};
  const size_t before = held_.size();
  held_ += text;
  for (size_t i = before; i < held_.size(); ++i) {
    for (size_t s = 0; s < stops_.size(); ++s) {
      Stop& stop = stops_[s];
      size_t& n = stop.matched;
      while (n > 0 && stop.text[n] != held_[i]) n = stop.fallback[n - 1];
      if (stop.text[n] == held_[i]) ++n;
      if (n < stop.text.size()) continue;
      if (!found() || n > stops_[static_cast<size_t>(found_)].text.size()) found_ = static_cast<int>(s);
      n = stop.fallback[n - 1];
    }
    if (!found()) continue;
    std::string shown = held_.substr(0, i + 1 - stops_[static_cast<size_t>(found_)].text.size());
    held_.clear();
    return shown;
  }
  size_t keep = 0;
  for (const Stop& stop : stops_) keep = std::max(keep, stop.matched);
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopStrings::finish() {
  for (Stop& stop : stops_) stop.matched = 0;
  return std::exchange(held_, {});
}

}  // namespace redline
