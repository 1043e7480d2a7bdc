// redline bench --kernel: one kernel by rows, shape, type, instruction set and threads.
#pragma once

#include <string>
#include <vector>

#include "lab/bench/progress.h"
#include "lab/json.h"
#include "lab/kernels/kernel_score.h"

namespace redline::lab {

struct KernelBenchRequest {
  std::string kernel;                        ///< of kernel_kinds()
  std::vector<std::vector<int64_t>> shapes;  ///< none: the widest product of a model of 1B, and its rows
  std::vector<std::string> types;            ///< none: one that the kernel is often used with
  std::vector<int64_t> rows;                 ///< none: 1, 4, 16, 64, 512
  std::string isa;                           ///< "": REDLINE_CPU_ISA, else the machine's richest
  std::string baseline;                      ///< another kernel of the same shape; "" for none
  int threads = 0;                           ///< 0: REDLINE_THREADS, else one per allowed core
  bool cached = false;
  double seconds = 1;         ///< of timing each row
  BenchProgress on_progress;  ///< may be empty
};

struct KernelBenchRow {
  KernelAsked asked;
  std::string isa;  ///< that serves the kernel
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

  /// internal: a wrong answer, or a figure faster than its bound.
  Status status() const;
};

/// invalid_argument: no such kernel, shape or type; said before anything is measured.
Result<KernelBenchReport> run_kernel_bench(const KernelBenchRequest& request);

/// The permanent record of one measurement.
Json kernel_trace_json(const KernelBenchRow& row, const MachinePeaks& peaks);
/// Appends to traces/DEFINITION.jsonl in `folder`. io: the file cannot be written.
Status append_trace(const std::string& folder, const Json& trace);

}  // namespace redline::lab
