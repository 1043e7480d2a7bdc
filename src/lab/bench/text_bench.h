// redline bench MODEL for a language model: opens the model, checks its answer, and measures the machine and every row.
#pragma once

#include <string>

#include "lab/bench/progress.h"
#include "lab/bench/text_report.h"

namespace redline::lab {

struct TextBenchRequest {
  std::string path;  ///< path of a model, or a name for TextEngine::open()
  std::string dtype = "auto";
  TextEngineOptions engine;  ///< `cache_tokens` is set here, and `context` if it is 0
  BenchRequest rows;
  std::optional<int64_t> repeat;  ///< BenchTiming::repeat
  double seconds = 120;
  bool check = true;
  BenchProgress on_progress;  ///< may be empty
  /// Called with each completed and judged row, and the report so far. May be empty.
  std::function<void(const BenchReport&, const BenchRow&)> on_row;
};

/// Runs the bench. After an error, the report has the rows that were measured before it, and the error
/// (BenchReport::failure).
/// unsupported, invalid_argument: errors of plan_bench_rows, measure_start and open_engine. internal: a wrong answer.
Result<BenchReport> run_text_bench(const TextBenchRequest& request);

}  // namespace redline::lab
