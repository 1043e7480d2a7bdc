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
  /// invalid_argument: shapes that do not read as numbers, a record of a peer.
  Result<lab::KernelBenchRequest> request(int threads) const;
};

}  // namespace redline::cli
