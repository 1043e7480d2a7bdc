// redline bench --kernel: one kernel over rows, shapes, types, instruction sets and threads.
#pragma once

#include <string>
#include <vector>

#include "lab/bench/progress.h"
#include "lab/json.h"
#include "lab/kernels/kernel_score.h"

namespace redline::lab {

struct KernelBenchRequest {
  std::string kernel;                        ///< of kernel_kinds()
  std::vector<std::vector<int64_t>> shapes;  ///< empty: the widest linear of a 1B model, with its rows
  std::vector<std::string> types;            ///< empty: one type that the kernel is often used with
  std::vector<int64_t> rows;                 ///< empty: 1, 4, 16, 64, 512
  std::string isa;                           ///< "": REDLINE_CPU_ISA, else the richest of the machine
  std::string baseline;                      ///< another kernel of the same shape; "": none
  int threads = 0;                           ///< 0: REDLINE_THREADS, else one per available core
  bool cached = false;
  double seconds = 1;         ///< of timing per row
  BenchProgress on_progress;  ///< may be empty
  /// Called with each row that is done and judged. May be empty.
  std::function<void(const struct KernelBenchRow&)> on_row;
};

struct KernelBenchRow {
  KernelWorkload workload;
  std::string isa;  ///< the instruction set that serves the kernel
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
  bool is_judged_again = false;  ///< the peaks were measured again after the rows, which changed their bounds
  Status failure;                ///< what stopped it after some rows: Ctrl-C (cancelled), or an error

  /// internal: a wrong answer, or a figure faster than its bound.
  Status status() const;
};

/// invalid_argument: unknown kernel, shape or type; checked before anything is measured. Rows that were measured before
/// another error are returned with it (KernelBenchReport::failure).
Result<KernelBenchReport> run_kernel_bench(const KernelBenchRequest& request);

/// The permanent record of one measurement.
Json kernel_trace_json(const KernelBenchRow& row, const MachinePeaks& peaks);
/// Appends to traces/DEFINITION.jsonl in `folder`. io: the file cannot be written.
Status append_trace(const std::string& folder, const Json& trace);

}  // namespace redline::lab
