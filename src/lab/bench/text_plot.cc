// The bench chart, written as SVG directly: a few rectangles need no library.
#include <algorithm>

#include "base/markup.h"
#include "base/output_file.h"
#include "lab/bench/text_report.h"
#include "lab/svg.h"

namespace redline::lab {
namespace {

constexpr double kRowHeight = 26;

/// The sizes of a chart, in pixels. A chart is a file of its own with captions, or a part of a page that has the
/// captions.
struct ChartSize {
  double width, label_width, bar_width, top, bottom;
  bool has_captions;
};
constexpr ChartSize kAlone = {960, 190, 440, 96, 64, true}, kInWidePage = {868, 170, 430, 12, 30, false},
                    kInNarrowPage = {460, 130, 110, 12, 30, false};

std::string row_label(const BenchRow& row) {
  switch (row.phase) {
    case BenchPhase::kPrefill:
      return row.depth > 0 ? fmt::format("prefill {} at {}", row.tokens, row.depth)
                           : fmt::format("prefill {}", row.tokens);
    case BenchPhase::kDecode: return fmt::format("decode at depth {}", row.depth);
    case BenchPhase::kBatch: return fmt::format("decode, {} streams", row.streams);
    case BenchPhase::kStart: return "start to first token";
  }
  return "";
}

std::string row_figure(const BenchRow& row) {
  if (row.phase == BenchPhase::kStart)
    return fmt::format("{:.2f} s, {:.2f} GB", row.median(), static_cast<double>(row.peak_memory) / 1e9);
  const double speed = row.tokens_per_s(row.median());
  return fmt::format("{:.{}f} tokens/s", speed, speed < 100 ? 1 : 0);
}

std::string machine_text(const BenchReport& report) {
  std::string text =
      fmt::format("{} thread{}, {}", report.model.threads, report.model.threads == 1 ? "" : "s", report.model.isa);
  for (const char* name : {"read", "f32", "f16", "bf16", "int8"})
    if (const Peak* c = report.peaks.find(name)) text += fmt::format("; {} {:.0f} {}", name, c->all, c->unit);
  return text;
}

std::string chart(const BenchReport& report, const ChartSize& size) {
  const auto [width, label_width, bar_width, top, bottom, has_captions] = size;
  std::vector<const BenchRow*> rows;
  for (const BenchRow& row : report.rows)
    if (row.is_measured()) rows.push_back(&row);
  const double plot_height = kRowHeight * static_cast<double>(rows.size()), height = top + plot_height + bottom;
  const auto x_of = [&](double share) { return label_width + bar_width * std::clamp(share, 0.0, 1.0); };
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" "
      "role=\"img\">\n<title>{}</title>\n<style>{}</style>\n",
      width, height, width, height, escaped(fmt::format("redline bench {}", report.label)), kSvgStyle);
  if (has_captions) {
    // Only the last component of a path, so that the title fits into the chart.
    svg += svg_text(16, 28, "title", "start", report.label.substr(report.label.find_last_of('/') + 1));
    svg += svg_text(16, 48, "dim", "start", machine_text(report));
    svg += svg_rectangle(16, 61, 12, 12, "memory") + svg_text(33, 72, "", "start", "bound by memory");
    svg += svg_rectangle(160, 61, 12, 12, "compute") + svg_text(177, 72, "", "start", "bound by arithmetic");
    svg +=
        svg_text(width - 16, 72, "dim", "end", "bar: share of this machine's roofline; line: slowest to fastest run");
  }
  for (int tenth = 0; tenth <= 10; tenth += width < 600 ? 5 : 2) {
    const double x = x_of(tenth / 10.0);
    svg += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" class=\"grid\"/>\n", x,
                       top - 6, top + plot_height);
    svg += svg_text(x, top + plot_height + 18, "dim num", "middle", fmt::format("{} %", tenth * 10));
  }
  double y = top;
  for (const BenchRow* row : rows) {
    const double share = row->share(), middle = y + kRowHeight / 2;
    const bool is_bad = !row->error.empty();
    svg += svg_text(label_width - 10, middle + 4, "", "end", row_label(*row));
    svg += svg_rectangle(label_width, y + 4, bar_width, kRowHeight - 8, "track");
    svg += svg_rectangle(label_width, y + 4, x_of(share) - label_width, kRowHeight - 8,
                         is_bad                 ? "bad"
                         : row->bound.is_memory ? "memory"
                                                : "compute");
    const double slow = x_of(row->bound.seconds / row->seconds.back()),
                 fast = x_of(row->bound.seconds / row->seconds.front());
    if (fast - slow >= 1)
      svg += fmt::format("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" class=\"whisker\"/>\n", slow,
                         fast, middle, middle);
    std::string figure = fmt::format("{} · {:.0f} %", row_figure(*row), 100 * share);
    if (is_bad) figure += " · faster than its bound";
    else if (row->state_changed()) figure += " · moved";
    svg += svg_text(label_width + bar_width + 10, middle + 4, is_bad ? "bad num" : "num", "start", figure);
    y += kRowHeight;
  }
  if (!has_captions) return svg + "</svg>\n";
  std::string foot = fmt::format("{}, {} parameters, {}", report.model.architecture, report.model.parameters,
                                 report.model.weight_types);
  if (!report.check.against.empty()) foot += fmt::format("; answer checked against {}", report.check.against);
  svg += svg_text(16, height - 16, "dim", "start", foot);
  return svg + "</svg>\n";
}

}  // namespace

std::string bench_svg(const BenchReport& report) { return chart(report, kAlone); }

std::string bench_html(const BenchReport& report) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>"
      "body{{font:15px system-ui,sans-serif;max-width:900px;margin:24px auto;padding:0 "
      "16px;background:#fff;color:#1f2328}}"
      "h1{{font-size:1.4em}}.dim{{color:#59636e}}.key::before{{content:\"\";display:inline-block;width:.8em;height:."
      "8em;"
      "margin-right:.4em;background:#2f7fc1}}.compute.key::before{{background:#c2701c}}.key{{margin-right:1.2em}}"
      "svg{{max-width:100%;height:auto}}.narrow{{display:none}}.scroll{{overflow-x:auto}}"
      "table{{border-collapse:collapse;font-variant-numeric:tabular-nums}}"
      "td,th{{padding:3px 12px 3px "
      "0;text-align:right;white-space:nowrap}}td:first-child,th:first-child{{text-align:left}}"
      "@media(max-width:640px){{.wide{{display:none}}.narrow{{display:block}}table{{font-size:12px}}"
      "td,th{{padding-right:8px}}}}"
      "@media(prefers-color-scheme:dark){{body{{background:#0d1117;color:#e6edf3}}.dim{{color:#9aa4af}}}}</style>\n",
      escaped(fmt::format("redline bench {}", report.label)));
  html +=
      fmt::format("<h1>{}</h1>\n<p class=\"dim\">{}, {} parameters, {}. {}.{}</p>\n",
                  escaped(report.label.substr(report.label.find_last_of('/') + 1)), escaped(report.model.architecture),
                  report.model.parameters, escaped(report.model.weight_types), escaped(machine_text(report)),
                  report.check.against.empty() ? "" : " Checked against " + escaped(report.check.against) + ".");
  html +=
      "<p>Bars: the share of this machine's roofline; lines: from the slowest to the fastest run. <br>"
      "<span class=\"key\">bound by memory</span> <span class=\"compute key\">bound by arithmetic</span></p>\n";
  html += "<div class=\"wide\">" + chart(report, kInWidePage) + "</div>\n<div class=\"narrow\">" +
          chart(report, kInNarrowPage) + "</div>\n";
  html +=
      "<div class=\"scroll\"><table>\n<tr><th>row<th>tokens/s<th>slowest<th>fastest<th>of ceiling<th>GB/s<th>GOP/s"
      "<th>bound by\n";
  for (const BenchRow& row : report.rows) {
    if (!row.is_measured()) {
      html += fmt::format("<tr><td>{}<td colspan=\"7\" style=\"text-align:left\">skipped: {}\n",
                          escaped(row_label(row)), escaped(row.skipped));
      continue;
    }
    html += fmt::format("<tr><td>{}<td>{:.1f}<td>{:.1f}<td>{:.1f}<td>{:.1f} %<td>{:.2f}<td>{:.1f}<td>{}{}\n",
                        escaped(row_label(row)), row.tokens_per_s(row.median()), row.tokens_per_s(row.seconds.back()),
                        row.tokens_per_s(row.seconds.front()), 100 * row.share(), row.bytes() / row.median() / 1e9,
                        row.operations() / row.median() / 1e9, escaped(row.bound.by),
                        row.error.empty() ? "" : " (error: " + escaped(row.error) + ")");
  }
  return html + "</table></div>\n</html>\n";
}

Status check_plot_name(const std::string& path) {
  if (path.empty()) return {};
  if (path.ends_with(".svg") || path.ends_with(".html")) return prepare_output(path);
  return invalid_argument("flag --plot: {} must end in .svg or .html", path);
}

Status write_plot(const BenchReport& report, const std::string& path) {
  return write_file(path, path.ends_with(".svg") ? bench_svg(report) : bench_html(report));
}

}  // namespace redline::lab
