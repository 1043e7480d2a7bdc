// redline bench --random flux-block: how long one run of a network of pictures takes beside what this machine could do.
#pragma once

#include <optional>
#include <string>

#include "cli/terminal.h"

namespace redline::cli {

struct NetworkBenchRequest {
  std::string network;  ///< "flux-block:bf16"
  int64_t side = 0;     ///< pixels; 0: the usual
  int threads = 0;
  std::optional<int64_t> repeat;  ///< nothing: up to 5, as `seconds` allow
  double seconds = 120;
  bool check = true;
  bool json = false;
  std::string trace;
};

/// Runs of a step; then the answer: a small size of the same network, with the same weights, against the float64
/// interpreter.
Status run_network_bench(const NetworkBenchRequest& request, Terminal& terminal);

}  // namespace redline::cli
