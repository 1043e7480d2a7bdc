// redline bench MODEL for a language model: opens it, checks its answer, measures the machine and every row.
#pragma once

#include <string>

#include "lab/bench/progress.h"
#include "lab/bench/text_report.h"

namespace redline::lab {

struct TextBenchRequest {
  std::string path;  ///< as open_engine takes it
  std::string dtype = "auto";
  TextEngineOptions engine;  ///< `cache_tokens` is set here, and `context` if it is 0
  BenchRequest rows;
  std::optional<int64_t> repeat;  ///< as in BenchTiming
  double seconds = 120;
  bool check = true;
  BenchProgress on_progress;  ///< may be empty
  /// Called with each row that is done and judged, and the report so far. May be empty.
  std::function<void(const BenchReport&, const BenchRow&)> on_row;
};

/// Rows that were measured before an error are returned with it (BenchReport::failure).
/// unsupported, invalid_argument: as plan_bench_rows, measure_start and open_engine say. internal: a wrong answer.
Result<BenchReport> run_text_bench(const TextBenchRequest& request);

}  // namespace redline::lab
