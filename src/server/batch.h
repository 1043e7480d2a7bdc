// Answers the requests of a batch file, computed by an App without sockets.
#pragma once

#include <functional>
#include <string>

#include "server/app.h"
#include "server/batch_file.h"

namespace redline::server {

struct BatchOptions {
  int64_t requests_at_once = 128;
  std::function<void()> on_answer = [] {};
  /// Called several times a second. Returns false to end soon; requests in progress are then not answered.
  std::function<bool()> goes_on = [] { return true; };
};

struct BatchSummary {
  int64_t answered = 0;  ///< number of answers in this run, errors included
  int64_t failed = 0;    ///< number of these that are errors
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  double seconds = 0;
  std::string first_failure;
};

/// Answers the lines that `output` does not have, in the order of completion. The models must be loaded and accept
/// `requests_at_once` requests. The calling thread prepares requests and writes answers. Errors as BatchOutput::append.
Result<BatchSummary> run_batch(App& app, const BatchInput& input, BatchOutput& output, const BatchOptions& options);

}  // namespace redline::server
