// Text inside HTML, SVG and XML.
#pragma once

#include <string>
#include <string_view>

namespace redline {

/// Escapes text for HTML, SVG and XML content and double-quoted attributes; control bytes become spaces.
inline std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

}  // namespace redline
