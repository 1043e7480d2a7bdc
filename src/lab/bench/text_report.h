// Writes the result of `redline bench MODEL` as JSON and as a chart.
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
  bool is_judged_again = false;  ///< the peaks were measured again after the rows, which has changed the bounds
  Status failure;                ///< error that ended the bench after some rows: Ctrl-C (cancelled), or another one

  const BenchRow* start() const;
};

Json bench_json(const BenchReport& report);

/// Return a self-contained chart for light and dark backgrounds, as SVG or as a page with the chart and a table. Each
/// row has one bar, whose length is the share of the bound, labelled with tokens/s.
std::string bench_svg(const BenchReport& report);
std::string bench_html(const BenchReport& report);
/// Checks that a name ends in .svg or .html and can be written. Called before measuring. invalid_argument: another
/// ending. Also the errors of prepare_output.
Status check_plot_name(const std::string& path);
/// Writes the chart. io: the file cannot be written.
Status write_plot(const BenchReport& report, const std::string& path);

}  // namespace redline::lab
