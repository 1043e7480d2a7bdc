// How an answer appears while it is written: reasoning dimmed, folded into one line, or left out.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "cli/terminal.h"
#include "redline/chat.h"

namespace redline::cli {

enum class ReasoningView : uint8_t {
  kShow,  ///< dimmed on a terminal
  kFold,  ///< its length, in one line that is drawn again and again; on a terminal only
  kHide,
};

class AnswerView {
 public:
  AnswerView(Terminal& terminal, ReasoningView reasoning);

  /// False: the reader has closed the output.
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
