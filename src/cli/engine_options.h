// Flags shared by all commands that open a language model.
#pragma once

#include <memory>
#include <string>

#include "cli/model_name.h"
#include "cli/options.h"
#include "lab/random/random_model.h"
#include "redline/text.h"

namespace redline::cli {

struct EngineArgs {
  std::string dtype = "auto";
  int threads = 0;
  int64_t context = 0;
  bool interpreter = false;
  std::string trace;
  std::vector<std::string> dtypes = {"auto", "f32"};

  void visit(OptionList& v) {
    v(dtype, "dtype", "TYPE", "arithmetic: f32 computes in float32 for all weight types", {.choices = dtypes});
    v(threads, "threads", "N", "worker threads",
      {.letter = 't', .min = 0, .max = 1024, .shown_default = "REDLINE_THREADS, else all cores"});
    v(context, "context", "N", "context length in tokens, prompt included",
      {.min = 0, .max = 1 << 24, .shown_default = "the model's own, at most 4096"});
    v(interpreter, "interpreter", "", "run the reference interpreter (float64, op by op): slow");
    v(trace, "trace", "FILE", "write a timeline for Perfetto", {.names_file = true});
  }

  Result<TextEngineOptions> options() const {
    TextEngineOptions o;
    REDLINE_ASSIGN(o.dtype, compute_type_from_name(dtype));
    o.threads = threads;
    o.context = context;
    o.use_interpreter = interpreter;
    o.trace_file = trace;
    return o;
  }
};

inline Result<std::unique_ptr<TextEngine>> open_engine(const std::string& model, const TextEngineOptions& options) {
  REDLINE_ASSIGN(const std::string path, find_model(model));
  return lab::open_engine(path, options);
}

}  // namespace redline::cli
