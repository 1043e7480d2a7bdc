// The chart of `bench serve`: a bar for each server under each load.
#include <algorithm>

#include "lab/serve/load.h"
#include "lab/svg.h"

namespace redline::lab {

std::string load_svg(const std::string& title, const std::vector<LoadBar>& bars) {
  constexpr double kWidth = 960, kBarHeight = 22, kGap = 14, kTop = 64, kLoadWidth = 130, kServerWidth = 190,
                   kLeft = kLoadWidth + kServerWidth, kBarWidth = 330;
  double most = 0, height = kTop + 24;
  for (size_t i = 0; i < bars.size(); ++i) {
    most = std::max(most, bars[i].summary.tokens_per_s);
    height += kBarHeight + (i > 0 && bars[i].load != bars[i - 1].load ? kGap : 0);
  }
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\">\n<title>{2}</title>\n<style>{3}</style>\n",
      kWidth, height, escaped(title), kSvgStyle);
  svg += svg_text(16, 28, "title", "start", title);
  svg += svg_text(16, 48, "dim", "start",
                  "tokens/s over all streams; first token and gap between tokens, median and 99th percentile");
  double y = kTop;
  for (size_t i = 0; i < bars.size(); ++i) {
    const LoadSummary& s = bars[i].summary;
    const bool begins = i == 0 || bars[i].load != bars[i - 1].load;
    if (begins && i > 0) y += kGap;
    const double middle = y + kBarHeight / 2 + 4;
    if (begins) svg += svg_text(16, middle, "", "start", bars[i].load);
    svg += svg_text(kLeft - 10, middle, "dim", "end", bars[i].server);
    svg += svg_rectangle(kLeft, y + 3, most > 0 ? kBarWidth * s.tokens_per_s / most : 0, kBarHeight - 6,
                         s.failed > 0                       ? "bad"
                         : bars[i].server == bars[0].server ? "memory"
                                                            : "compute");
    std::string figure =
        fmt::format("{:.0f} tokens/s · first {:.0f}, {:.0f} ms · gap {:.0f}, {:.0f} ms", s.tokens_per_s,
                    1e3 * s.first_p50, 1e3 * s.first_p99, 1e3 * s.gap_p50, 1e3 * s.gap_p99);
    if (s.failed > 0) figure += fmt::format(" · {} failed", s.failed);
    svg += svg_text(kLeft + kBarWidth + 10, middle, "num", "start", figure);
    y += kBarHeight;
  }
  return svg + "</svg>\n";
}

}  // namespace redline::lab
