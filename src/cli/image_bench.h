// redline bench FOLDER, a pipeline of pictures: its steps at several sizes, what a new size costs, what adapters cost.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/terminal.h"

namespace redline::cli {

struct ImageBenchRequest {
  std::string folder, dtype;
  int threads = 0;
  std::optional<int64_t> side;    ///< pixels; nothing: the model's own, and three quarters and one half of it
  std::optional<int64_t> repeat;  ///< steps of each size after the first two
  std::vector<std::string> lora;  ///< files
  bool check = true, json = false;
  std::string trace;
};

/// Whether `path` is a folder of a pipeline.
bool is_pipeline(const std::string& path);

/// The answer first: one small step against the float64 interpreter's.
Status run_image_bench(const ImageBenchRequest& request, Terminal& terminal);

}  // namespace redline::cli
