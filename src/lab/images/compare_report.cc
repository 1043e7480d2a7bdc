// A comparison as JSON and as one HTML page.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/markup.h"
#include "lab/images/compare.h"

namespace redline::lab {
namespace {

using Json = nlohmann::ordered_json;

Json summary_of(const std::vector<double>& values, double worse_percentile) {
  return {{"mean", mean_of(values)},
          {fmt::format("p{:.0f}", worse_percentile), percentile_of(values, worse_percentile)},
          {"each", values}};
}

std::string image(const std::string& png, const std::string& label) {
  return fmt::format(
      "<figure><img alt=\"{0}\" src=\"data:image/png;base64,{1}\"><figcaption>{0}</figcaption></figure>\n",
      escaped(label), to_base64(png));
}

/// A setting's marker in the plot: colour by rule, hollow for uncached runs.
constexpr std::string_view kColours[] = {"#c2701c", "#2f7fc1", "#2e8b57", "#9a3fb5", "#b3261e",
                                         "#3f6f7f", "#8a6d00", "#d1477a", "#5a5ad1", "#59636e"};

struct Plot {
  double x_least, x_most, y_least, y_most;
  static constexpr double kWidth = 720, kHeight = 380, kLeft = 56, kRight = 34, kTop = 16, kBottom = 44;
  double x(double v) const { return kLeft + (v - x_least) / (x_most - x_least) * (kWidth - kLeft - kRight); }
  double y(double v) const {
    return kHeight - kBottom - (v - y_least) / (y_most - y_least) * (kHeight - kTop - kBottom);
  }
};

struct LegendEntry {
  std::string name;
  std::string_view colour;
  bool is_dashed = false;
};
/// Returns the legend, which stands above its plot. It is text of the page, so that it wraps and has the size of the
/// other text at any width.
std::string legend(const std::vector<LegendEntry>& entries) {
  std::string html = "<p class=\"legend\">";
  for (const LegendEntry& entry : entries)
    html += fmt::format("<span><i style=\"border-top:3px {} {}\"></i>{}</span> ", entry.is_dashed ? "dashed" : "solid",
                        entry.colour, escaped(entry.name));
  return html + "</p>\n";
}

std::string family_of(const ComparedSetting& s, int64_t full_steps) {
  return s.steps < full_steps ? "fewer steps" : s.requested.substr(0, s.requested.find(':'));
}

/// Plots PSNR over the executed fraction of operations. Settings of one rule are connected.
std::string quality_plot(const CompareReport& report) {
  Plot plot{0, 1, 1e9, -1e9};
  std::vector<std::string> families;
  for (const ComparedSetting& s : report.settings) {
    plot.y_least = std::min(plot.y_least, mean_of(s.psnr));
    plot.y_most = std::max(plot.y_most, mean_of(s.psnr));
    const std::string family = family_of(s, report.request.num_inference_steps);
    if (std::find(families.begin(), families.end(), family) == families.end()) families.push_back(family);
  }
  if (report.settings.empty()) return "";
  plot.y_least = 5 * std::floor(plot.y_least / 5 - 0.2);
  plot.y_most = 5 * std::ceil(plot.y_most / 5 + 0.2);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\" aria-label=\"PSNR by "
      "executed "
      "share of operations\">\n",
      Plot::kWidth, Plot::kHeight);
  const double step = plot.y_most - plot.y_least > 40 ? 10 : 5;
  for (double v = plot.y_least; v <= plot.y_most + 1e-9; v += step)
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"{:.1f}\" "
        "y=\"{:.1f}\" text-anchor=\"end\">{:.0f}</text>\n",
        Plot::kLeft, Plot::kWidth - Plot::kRight, plot.y(v), plot.y(v), Plot::kLeft - 6, plot.y(v) + 4, v);
  for (int tenth = 0; tenth <= 10; tenth += 2)
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{} %</text>\n", plot.x(tenth / 10.0),
                       Plot::kHeight - Plot::kBottom + 18, tenth * 10);
  svg += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">executed operations</text><text x=\"14\" "
      "y=\"{:.1f}\" transform=\"rotate(-90 14 {:.1f})\" text-anchor=\"middle\">mean PSNR, dB</text>\n",
      (Plot::kLeft + Plot::kWidth) / 2, Plot::kHeight - 6, Plot::kHeight / 2, Plot::kHeight / 2);
  std::vector<LegendEntry> entries;
  for (size_t f = 0; f < families.size(); ++f) {
    std::vector<std::pair<double, double>> points;
    for (const ComparedSetting& s : report.settings)
      if (family_of(s, report.request.num_inference_steps) == families[f])
        points.emplace_back(s.executed_share, mean_of(s.psnr));
    std::sort(points.begin(), points.end());
    const std::string_view colour = kColours[f % std::size(kColours)];
    std::string path;
    for (const auto& [x, y] : points)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", plot.x(x), plot.y(y));
    svg += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n", path, colour);
    for (const auto& [x, y] : points)
      svg += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"><title>{}: {:.1f} %, {:.2f} dB</title></circle>\n",
          plot.x(x), plot.y(y), colour, escaped(families[f]), 100 * x, y);
    entries.push_back({families[f], colour});
  }
  return legend(entries) + svg + "</svg>\n";
}

/// Plots each prompt's PSNR, sorted, which shows the worst cases.
std::string spread_plot(const CompareReport& report) {
  Plot plot{0, 100, 1e9, -1e9};
  for (const ComparedSetting& s : report.settings)
    for (const double v : s.psnr) {
      plot.y_least = std::min(plot.y_least, v);
      plot.y_most = std::max(plot.y_most, v);
    }
  if (report.settings.empty()) return "";
  plot.y_least = 10 * std::floor(plot.y_least / 10);
  plot.y_most = 10 * std::ceil(plot.y_most / 10 + 1e-9);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\" "
      "aria-label=\"PSNR of each prompt, sorted\">\n",
      Plot::kWidth, Plot::kHeight);
  for (double v = plot.y_least; v <= plot.y_most + 1e-9; v += 10)
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"{:.1f}\" "
        "y=\"{:.1f}\" text-anchor=\"end\">{:.0f}</text>\n",
        Plot::kLeft, Plot::kWidth - Plot::kRight, plot.y(v), plot.y(v), Plot::kLeft - 6, plot.y(v) + 4, v);
  for (int percent = 0; percent <= 100; percent += 20)
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{} %</text>\n", plot.x(percent),
                       Plot::kHeight - Plot::kBottom + 18, percent);
  svg += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">share of prompts below</text><text x=\"14\" y=\"{:.1f}\" "
      "transform=\"rotate(-90 14 {:.1f})\" text-anchor=\"middle\">PSNR, dB</text>\n",
      (Plot::kLeft + Plot::kWidth) / 2, Plot::kHeight - 6, Plot::kHeight / 2, Plot::kHeight / 2);
  std::vector<LegendEntry> entries;
  for (size_t i = 0; i < report.settings.size(); ++i) {
    const ComparedSetting& s = report.settings[i];
    std::string path;
    for (int percent = 0; percent <= 100; percent += 5)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", plot.x(percent),
                          plot.y(percentile_of(s.psnr, percent)));
    svg +=
        fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\"{}><title>{}</title></path>\n", path,
                    kColours[i % std::size(kColours)],
                    s.steps < report.request.num_inference_steps ? " stroke-dasharray=\"4 3\"" : "", escaped(s.name));
    entries.push_back({s.name, kColours[i % std::size(kColours)], s.steps < report.request.num_inference_steps});
  }
  return legend(entries) + svg + "</svg>\n";
}

constexpr std::string_view kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 "
    "1rem;color:#1f2328;background:#fff}"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "td,th{padding:.3rem .7rem;text-align:right;vertical-align:top;border-bottom:1px solid #d1d9e0}"
    "td:first-child,th:first-child{text-align:left;min-width:6.5rem;overflow-wrap:anywhere;padding-left:0}"
    "td small{display:block;color:#59636e;white-space:nowrap}td{white-space:nowrap}td:first-child{white-space:normal}"
    "figure{display:inline-block;margin:.3rem;width:9rem;vertical-align:top}img{width:100%;image-rendering:auto}"
    "figcaption{font-size:12px;overflow-wrap:anywhere}svg{max-width:100%;font:12px system-ui,sans-serif}svg "
    "text{fill:#59636e}"
    ".legend span{display:inline-block;margin-right:1.2rem}.legend i{display:inline-block;width:1.4rem;margin:0 .4rem "
    ".25rem 0}"
    ".grid{stroke:#59636e;stroke-opacity:.25}.dim{color:#59636e}"
    // On narrow screens the table gets a smaller font to fit, and the plots, which shrink, get a larger one to stay
    // legible.
    "@media(max-width:640px){table{font-size:13px}td,th{padding:.25rem .4rem}svg{font-size:18px}"
    "figure{width:calc(50% - 1rem)}}"
    "@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}td,th{border-color:#3d444d}"
    "td small,.dim{color:#9aa4af}svg text{fill:#9aa4af}}";

}  // namespace

std::string CompareReport::to_json() const {
  Json out = {{"model", model},
              {"machine", machine},
              {"width", request.width},
              {"height", request.height},
              {"steps", request.num_inference_steps},
              {"guidance", request.guidance_scale},
              {"true_cfg_scale", request.true_cfg_scale},
              {"negative_prompt", request.negative_prompt},
              {"seed", request.seed},
              {"solver", request.solver},
              {"reference_loop_ms", reference_loop_ms},
              {"prompts", prompts},
              {"settings", Json::array()}};
  if (!stopped.empty()) out["stopped"] = stopped;
  for (const ComparedSetting& s : settings) {
    Json row = {{"name", s.name},
                {"requested", s.requested},
                {"steps", s.steps},
                {"executed_share", s.executed_share},
                {"operations_speedup", 1 / s.executed_share},
                {"computed_steps", s.computed_steps},
                {"loop_ms", s.loop_ms},
                {"time_speedup", reference_loop_ms / s.loop_ms},
                {"psnr", summary_of(s.psnr, 5)},
                {"ssim", summary_of(s.ssim, 5)}};
    if (s.target_speedup > 0) row["target_speedup"] = s.target_speedup;
    if (!s.lpips.empty()) row["lpips"] = summary_of(s.lpips, 95);
    if (s.fewer_by_operations >= 0) row["fewer_steps_at_equal_operations"] = settings[s.fewer_by_operations].name;
    if (s.fewer_by_time >= 0) row["fewer_steps_at_equal_time"] = settings[s.fewer_by_time].name;
    if (!s.warnings.empty()) row["warnings"] = s.warnings;
    out["settings"].push_back(std::move(row));
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string CompareReport::to_html() const {
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>Step caches compared</title><style>";
  html += kStyle;
  html += "</style></head><body>\n";
  html += fmt::format(
      "<h1>Step caches compared</h1>\n<p>{}: {} prompts, {}x{}, {} steps, guidance {:g}, true CFG scale {:g}, seeds "
      "from {}. {}. The uncached loop takes {:.1f} ms. Likeness is to the uncached run with the same "
      "noise; each setting is compared with fewer steps at equal operations and at equal time.</p>\n",
      escaped(model), prompts.size(), request.width, request.height, request.num_inference_steps,
      request.guidance_scale, request.true_cfg_scale, request.seed, escaped(machine), reference_loop_ms);
  if (!stopped.empty()) html += fmt::format("<p>Not finished: {}.</p>\n", escaped(stopped));
  const bool has_lpips = !settings.empty() && !settings[0].lpips.empty();
  html +=
      "<div class=\"scroll\"><table>\n<tr><th>setting<th>operations<th>loop<th>PSNR, dB<small class=\"dim\"><br>5th "
      "pct</small><th>SSIM<small class=\"dim\"><br>5th pct</small>";
  if (has_lpips) html += "<th>LPIPS<small class=\"dim\"><br>95th pct</small>";
  html += "<th>fewer steps, equal operations<th>fewer steps, equal time</tr>\n";
  for (const ComparedSetting& s : settings) {
    html += fmt::format(
        "<tr><td>{}<td>{:.1f} %<small>{:.2f}x fewer</small><td>{:.1f} ms<small>{:.2f}x as fast</small>"
        "<td>{:.2f}<small>{:.2f}</small><td>{:.4f}<small>{:.4f}</small>",
        escaped(s.name), 100 * s.executed_share, 1 / s.executed_share, s.loop_ms, reference_loop_ms / s.loop_ms,
        mean_of(s.psnr), percentile_of(s.psnr, 5), mean_of(s.ssim), percentile_of(s.ssim, 5));
    if (has_lpips) html += fmt::format("<td>{:.4f}<small>{:.4f}</small>", mean_of(s.lpips), percentile_of(s.lpips, 95));
    for (const int64_t fewer : {s.fewer_by_operations, s.fewer_by_time})
      html += fewer < 0 ? std::string("<td>")
                        : fmt::format("<td>{:.2f} dB<small>{}</small>", mean_of(settings[fewer].psnr),
                                      escaped(settings[fewer].name));
    html += "</tr>\n";
  }
  html += "</table></div>\n<h2>Likeness and work</h2>\n" + quality_plot(*this) +
          "<h2>Prompts from worst to best</h2>\n" + spread_plot(*this);
  html += "<h2>Images</h2>\n";
  for (size_t i = 0; i < reference_png.size(); ++i) {
    html += fmt::format("<p>{}</p>\n", escaped(prompts[i])) + image(reference_png[i], "uncached");
    for (const ComparedSetting& s : settings)
      if (i < s.png.size()) html += image(s.png[i], fmt::format("{}: {:.1f} dB", s.name, s.psnr[i]));
  }
  for (const ComparedSetting& s : settings)
    for (const std::string& warning : s.warnings)
      html += fmt::format("<p class=\"dim\">{}: {}</p>\n", escaped(s.name), escaped(warning));
  return html + "</body></html>\n";
}

}  // namespace redline::lab
