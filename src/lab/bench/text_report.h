// The result of `redline bench MODEL` as JSON and as a chart.
#pragma once

#include "lab/bench/answer_check.h"
#include "lab/bench/text_rows.h"

namespace redline::lab {

struct BenchReport {
  ModelInfo model;
  std::string dtype, label;  ///< `label`: the model's name for people
  MachinePeaks peaks;
  AnswerCheck check;
  std::vector<BenchRow> rows;

  const BenchRow* start() const;
};

Json bench_json(const BenchReport& report);

/// One picture without outside parts, readable on light and dark ground: a bar for each row, its length the share of
/// the peak, with tokens/s beside it. SVG, or a page with that picture and the table's facts.
std::string bench_svg(const BenchReport& report);
std::string bench_html(const BenchReport& report);
/// By the name's end, .svg or .html. invalid_argument: another end; said before anything is measured.
Status check_plot_name(const std::string& path);
/// io: what the system says.
Status write_plot(const BenchReport& report, const std::string& path);

}  // namespace redline::lab
