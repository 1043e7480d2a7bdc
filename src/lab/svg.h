// Parts of charts in SVG, which are written directly: a few rectangles need no library.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/markup.h"

namespace redline::lab {

// Hues with a contrast of 4.5:1 on both backgrounds that also differ in lightness, for readers who cannot tell red from
// green.
inline constexpr std::string_view kSvgStyle =
    "text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-size:16px;font-weight:600}.dim{fill:#59636e}"
    ".num{font-variant-numeric:tabular-nums}.memory{fill:#2f7fc1}.compute{fill:#c2701c}.bad{fill:#b3261e}"
    ".track{fill:#59636e;fill-opacity:.12}.grid{stroke:#59636e;stroke-opacity:.3}.whisker{stroke:#1f2328;stroke-"
    "opacity:.75}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.dim{fill:#9aa4af}.memory{fill:#5aa9e6}.compute{fill:#e39a4f}"
    ".bad{fill:#ff7b72}.track{fill:#9aa4af;fill-opacity:.15}.grid{stroke:#9aa4af}.whisker{stroke:#e6edf3}}";

inline std::string svg_text(double x, double y, std::string_view classes, std::string_view anchor,
                            std::string_view text) {
  return fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y, classes,
                     anchor, escaped(text));
}

inline std::string svg_rectangle(double x, double y, double width, double height, std::string_view classes) {
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"3\" class=\"{}\"/>\n", x,
                     y, std::max(width, 0.0), height, classes);
}

}  // namespace redline::lab
