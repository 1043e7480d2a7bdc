// redline bench --kernel: one kernel by rows, shape, type, instruction set and threads.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/terminal.h"

namespace redline::cli {

struct KernelBenchArgs {
  std::string kernel, shape, type, isa, record, baseline;
  std::vector<int64_t> rows;
  bool cached = false;
  float seconds = 1;

  void visit(OptionList& v);
};

/// `threads` 0: one for each core that may be used.
/// internal: a wrong answer, or a figure faster than its bound; said after everything was measured and recorded.
Status run_kernel_bench(const KernelBenchArgs& args, int threads, bool json, Terminal& terminal);

}  // namespace redline::cli
