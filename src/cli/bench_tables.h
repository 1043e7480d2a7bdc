// The human-readable output of `redline bench`: each row is printed when it is done.
#pragma once

#include <optional>

#include "cli/table.h"
#include "cli/terminal.h"
#include "lab/bench/image_bench.h"
#include "lab/bench/kernel_bench.h"
#include "lab/bench/network_bench.h"
#include "lab/bench/text_report.h"

namespace redline::cli {

class TextBenchTable {
 public:
  explicit TextBenchTable(Terminal& terminal) : terminal_(terminal) {}
  /// Prints a row; the first row is preceded by the model, the machine and the header.
  void add(const lab::BenchReport& report, const lab::BenchRow& row);
  /// Prints notes on all rows, and the rows again if their bounds have changed.
  void finish(const lab::BenchReport& report);

 private:
  Terminal& terminal_;
  bool has_begun_ = false;
  std::vector<std::string> notes_;
};

class ImageBenchTable {
 public:
  explicit ImageBenchTable(Terminal& terminal) : terminal_(terminal) {}
  void add(const lab::ImageBenchReport& report, const lab::ImageSizeRow& row);
  /// Prints the notes. `was_asked_to_check`: --no-check was not given.
  void finish(const lab::ImageBenchReport& report, bool was_asked_to_check);

 private:
  Terminal& terminal_;
  bool has_begun_ = false;
};

class KernelBenchTable {
 public:
  explicit KernelBenchTable(Terminal& terminal) : terminal_(terminal) {}
  void add(const lab::KernelBenchRow& row);
  void finish(const lab::KernelBenchReport& report);

 private:
  Terminal& terminal_;
  std::optional<RowTable> table_;
};

void print_network_bench(const lab::NetworkBenchReport& report, Terminal& terminal);
/// Prints the answer to `--kernel help`.
void print_kernel_kinds(Terminal& terminal);

}  // namespace redline::cli
