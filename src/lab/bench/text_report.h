// The result of `redline bench MODEL` as JSON and as a chart.
#pragma once

#include "lab/bench/answer_check.h"
#include "lab/bench/text_rows.h"

namespace redline::lab {

struct BenchReport {
  ModelInfo model;
  std::string dtype, label;  ///< `label`: display name of the model
  MachinePeaks peaks;
  AnswerCheck check;
  std::vector<BenchRow> rows;
  bool is_judged_again = false;  ///< the peaks were measured again after the rows, which changed their bounds
  Status failure;                ///< what stopped it after some rows: Ctrl-C (cancelled), or an error

  const BenchRow* start() const;
};

Json bench_json(const BenchReport& report);

/// A self-contained chart for light and dark backgrounds: one bar per row, its length the share of the bound, labelled
/// with tokens/s. As SVG, or as a page with the chart and a table.
std::string bench_svg(const BenchReport& report);
std::string bench_html(const BenchReport& report);
/// Accepts names that end in .svg or .html and can be written. invalid_argument: another ending. Errors as
/// prepare_output. Called before anything is measured.
Status check_plot_name(const std::string& path);
/// io: the file cannot be written.
Status write_plot(const BenchReport& report, const std::string& path);

}  // namespace redline::lab
