// redline bench --kernel: times one kernel over rows, shapes, types, instruction sets and threads.
#pragma once

#include <string>
#include <vector>

#include "lab/bench/progress.h"
#include "lab/json.h"
#include "lab/kernels/kernel_score.h"

namespace redline::lab {

struct KernelBenchRequest {
  std::string kernel;                        ///< a name of kernel_kinds()
  std::vector<std::vector<int64_t>> shapes;  ///< empty: the widest linear of a 1B model, with its rows
  std::vector<std::string> types;            ///< empty: one type that is typical for the kernel
  std::vector<int64_t> rows;                 ///< empty: 1, 4, 16, 64, 512
  std::string isa;                           ///< instruction set; "": REDLINE_CPU_ISA, else the richest of the machine
  std::string baseline;                      ///< another kernel of the same shape; "": none
  int threads = 0;                           ///< 0: REDLINE_THREADS, else one per available core
  bool cached = false;
  double seconds = 1;         ///< time for measuring one row
  BenchProgress on_progress;  ///< may be empty
  /// Called with each completed row and its verdict. May be empty.
  std::function<void(const struct KernelBenchRow&)> on_row;
};

struct KernelBenchRow {
  KernelWorkload workload;
  std::string isa;  ///< instruction set in which the kernel is implemented
  int threads = 1;
  bool cached = false;
  KernelCase::Cost cost;
  KernelTiming timing;
  KernelBound bound;
  KernelVerdict verdict;
  std::string baseline;
  double baseline_seconds = 0;

  double score() const { return sol_score(timing.median(), baseline_seconds, bound.seconds); }
  double share() const { return timing.median() > 0 ? bound.seconds / timing.median() : 0; }
};

struct KernelBenchReport {
  MachinePeaks peaks;
  std::vector<KernelBenchRow> rows;
  bool is_judged_again = false;  ///< the peaks were measured again after the rows, which has changed the bounds
  Status failure;                ///< error that ended the bench after some rows: Ctrl-C (cancelled), or another one

  /// Returns internal if an answer is wrong, or a time is below its bound.
  Status status() const;
};

/// Runs the bench. invalid_argument: unknown kernel, shape or type, checked before measuring. After another error, the
/// report has the rows that were measured before it, and the error (KernelBenchReport::failure).
Result<KernelBenchReport> run_kernel_bench(const KernelBenchRequest& request);

/// Returns the permanent record of one measurement.
Json kernel_trace_json(const KernelBenchRow& row, const MachinePeaks& peaks);
/// Appends a record to traces/DEFINITION.jsonl in `folder`. io: the file cannot be written.
Status append_trace(const std::string& folder, const Json& trace);

}  // namespace redline::lab
