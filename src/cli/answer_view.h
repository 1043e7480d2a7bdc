// Displays an answer while it is generated. Reasoning is dimmed, folded into one line, or hidden.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "cli/terminal.h"
#include "redline/chat.h"

namespace redline::cli {

enum class ReasoningView : uint8_t {
  kShow,  ///< reasoning is dimmed on a terminal
  kFold,  ///< shows the length of the reasoning in one line that is redrawn; on a terminal only
  kHide,
};

class AnswerView {
 public:
  AnswerView(Terminal& terminal, ReasoningView reasoning);

  /// Shows a part of the answer. Returns false if the reader has closed the output.
  bool take(const ChatDelta& delta);
  /// Ends the answer with a line break.
  void finish();

 private:
  void begin_reasoning();
  void end_reasoning();
  bool write(std::string_view text);

  Terminal& terminal_;
  const ReasoningView reasoning_;
  const bool is_terminal_, has_colors_;
  bool is_reasoning_ = false, ends_with_newline_ = true, has_written_ = false;
  int64_t reasoning_pieces_ = 0;
  std::chrono::steady_clock::time_point reasoning_begin_, drawn_;
};

}  // namespace redline::cli
