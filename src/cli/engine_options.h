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
#include "cli/option_rows.h"
#include "cli/peer_flags.h"
#include "cli/terminal.h"
#include "models/files/random_model.h"
#include "redline/text.h"

namespace redline::cli {

/// TextEngineOptions::max_slowdown of servers. Gaps between tokens should stay below three times the usual one, and the
/// time of equal steps varies by a fifth and more.
inline constexpr double kServedSlowdown = 2;

struct EngineArgs {
  TextEngineOptions values;  ///< the defaults, then what the flags say

  /// Adds the flags that every command has.
  void visit(OptionList& v) {
    add_option_rows(v, values, is_for_every_command);
    add_text_engine_peers(v);
  }
  /// Adds the flags of `serve` and `batch` in addition.
  void visit_servers(OptionList& v, bool is_serve, const ShownDefaults& shown = {}) {
    if (is_serve) values.max_slowdown = kServedSlowdown;
    add_option_rows(
        v, values,
        [is_serve](const OptionRow& row) {
          return row.commands == OptionRow::kServers || (is_serve && row.commands == OptionRow::kServe);
        },
        shown);
  }

  Result<TextEngineOptions> options() const {
    REDLINE_TRY(check_reference(values.use_interpreter, values.device));
    return values;
  }
};

/// The flags of commands that generate text.
struct DraftingEngineArgs : EngineArgs {
  void visit(OptionList& v) {
    EngineArgs::visit(v);
    add_option_rows(v, values, [](const OptionRow& row) { return row.commands == OptionRow::kGenerating; });
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
