// Flags shared by all commands that open a language model.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "base/progress.h"
#include "cli/device_option.h"
#include "cli/file_kind.h"
#include "cli/memory_advice.h"
#include "cli/model_name.h"
#include "cli/peer_flags.h"
#include "cli/precision_option.h"
#include "cli/terminal.h"
#include "models/files/random_model.h"
#include "redline/text.h"

namespace redline::cli {

/// TextEngineOptions::max_slowdown of servers. Gaps between tokens should stay below three times the usual one, and the
/// time of equal steps varies by a fifth and more.
inline constexpr float kServedSlowdown = 2;

struct EngineArgs {
  std::string dtype = "auto";
  int threads = 0;
  int64_t context = 0;
  bool batch_invariant = false, interpreter = false;
  std::string device = "auto";
  int64_t gpu_layers = -1;
  std::string trace;

  void visit(OptionList& v) {
    v(dtype, "dtype", "TYPE", kPrecisionHelp, {.choices = precision_names()});
    v(threads, "threads", "N", "worker threads",
      {.letter = 't', .min = 0, .max = 1024, .shown_default = "REDLINE_THREADS, else all cores"});
    v(context, "context", "N", "context length in tokens, prompt included",
      {.letter = 'c',
       .min = 0,
       .max = 1 << 24,
       .shown_default = "the model's own, as far as memory allows",
       .aliases = {"--ctx-size", "--num-ctx", "--max-model-len"}});
    add_device(v, device);
    v(gpu_layers, "gpu-layers", "N", "layers on the device, the first ones; the CPU runs the others",
      {.min = 0, .max = 1 << 20, .shown_default = "what fits and is fastest"});
    v(batch_invariant, "batch-invariant", "",
      "the same logits whatever else is in a batch and however a prompt is cut: slower prompts");
    v(interpreter, "interpreter", "", "run the reference interpreter (float64, op by op): slow");
    v(trace, "trace", "FILE", "write a timeline for Perfetto", {.names_file = true});
    add_text_engine_peers(v);
  }

  Result<TextEngineOptions> options() const {
    TextEngineOptions o;
    REDLINE_ASSIGN(o.dtype, precision_from_name(dtype));
    o.threads = threads;
    o.context = context;
    o.batch_invariant = batch_invariant;
    o.use_interpreter = interpreter;
    o.device = device;
    o.gpu_layers = gpu_layers;
    REDLINE_TRY(check_reference(interpreter, device));
    o.trace_file = trace;
    return o;
  }
};

/// Engine flags of commands that generate text.
struct DraftingEngineArgs : EngineArgs {
  std::string speculate = TextEngineOptions().speculate;
  int64_t draft_max = TextEngineOptions().num_speculative_tokens;

  void visit(OptionList& v) {
    EngineArgs::visit(v);
    v(speculate, "speculate", "NAME",
      "draft tokens, and verify several in one step, which changes no text; \"prompt-lookup\" drafts what followed an "
      "earlier occurrence of the last tokens");
    v(draft_max, "draft-max", "N", "maximum drafted tokens of a text in one step",
      {.min = 0,
       .max = TextEngineOptions::kMaxSpeculativeTokens,
       .aliases = {"--draft", "--draft-n", "--num-speculative-tokens"},
       .needs = {"speculate"}});
  }

  Result<TextEngineOptions> options() const {
    REDLINE_ASSIGN(TextEngineOptions o, EngineArgs::options());
    o.speculate = speculate;
    o.num_speculative_tokens = draft_max;
    return o;
  }
};

inline void note_long_context(const ModelInfo& info, Terminal& terminal) {
  if (info.model_context > 0 && info.context > info.model_context)
    terminal.note(
        "redline: the context of {} tokens is longer than the {} that the model was trained for; what it predicts "
        "beyond them may be wrong",
        info.context, info.model_context);
}

inline void note_conversion(const ModelInfo& info, Terminal& terminal) {
  if (const std::string text = info.conversion.text(); !text.empty()) terminal.note("redline: {}", text);
}

inline void note_left_out(const ModelInfo& info, Terminal& terminal) {
  if (!info.left_out.empty()) terminal.note("redline: the model's text part runs; {} are left out", info.left_out);
}

/// Opens the model while the terminal shows the progress, and notes a context longer than the model's, parts that are
/// left out and converted weights.
inline Result<std::unique_ptr<TextEngine>> open_engine(const std::string& model, const TextEngineOptions& options,
                                                       Terminal& terminal) {
  REDLINE_ASSIGN(const std::string path, find_model(model));
  if (const std::string warning = memory_warning(path); !warning.empty())
    terminal.note("redline: warning: {}", warning);
  std::optional<Progress> loading(std::in_place, "loading " + short_name(path), 0);
  TextEngineOptions noted = options;
  if (!noted.on_notice)
    noted.on_notice = [](const std::string& text) {  // from any thread, in one piece
      std::fputs(("redline: " + text + "\n").c_str(), stderr);
    };
  Result<std::unique_ptr<TextEngine>> engine = TextEngine::open(path, noted);
  loading.reset();
  if (!engine.ok())
    return explain_kind(advise_text_memory(engine.status(), path, options.context), path, ModelUse::kText);
  note_long_context((*engine)->info(), terminal);
  note_left_out((*engine)->info(), terminal);
  note_conversion((*engine)->info(), terminal);
  return engine;
}

}  // namespace redline::cli
