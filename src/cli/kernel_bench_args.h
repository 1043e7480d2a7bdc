// The flags of redline bench --kernel.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "lab/bench/kernel_bench.h"

namespace redline::cli {

struct KernelBenchArgs {
  std::string kernel, shape, type, isa, record, baseline;
  std::vector<int64_t> rows;
  bool cached = false;
  float seconds = 1;

  void visit(OptionList& v);
  /// Returns the benchmark request. invalid_argument: shapes that are not numbers, or a record of a baseline library.
  Result<lab::KernelBenchRequest> request(int threads) const;
};

}  // namespace redline::cli
