#include "cli/answer_view.h"

#include <unistd.h>

#include <cstdlib>

#include "base/elapsed.h"
#include "base/progress.h"

namespace redline::cli {
namespace {

constexpr const char *kDim = "\x1b[2m", *kPlain = "\x1b[0m", *kEraseLine = "\r\x1b[K";

}  // namespace

AnswerView::AnswerView(Terminal& terminal, ReasoningView reasoning)
    : terminal_(terminal), reasoning_(reasoning), is_terminal_(::isatty(fileno(terminal.output())) == 1),
      has_colors_(is_terminal_ && !std::getenv("NO_COLOR")) {}

bool AnswerView::write(std::string_view text) {
  if (text.empty()) return !terminal_.reader_is_gone();
  has_written_ = true;
  ends_with_newline_ = text.back() == '\n';
  return terminal_.write(text) && terminal_.flush();
}

void AnswerView::begin_reasoning() {
  is_reasoning_ = true;
  reasoning_begin_ = drawn_ = std::chrono::steady_clock::now();
  reasoning_pieces_ = 0;
  if (reasoning_ == ReasoningView::kShow && has_colors_) terminal_.write(kDim);
  if (reasoning_ == ReasoningView::kFold && is_terminal_) {
    terminal_.write("thinking ...");
    terminal_.flush();
  }
}

void AnswerView::end_reasoning() {
  is_reasoning_ = false;
  if (reasoning_ == ReasoningView::kShow) {
    if (!ends_with_newline_) write("\n");
    if (has_colors_) terminal_.write(kPlain);
    write("\n");
  }
  if (reasoning_ == ReasoningView::kFold && is_terminal_)
    terminal_.print("{}{}thought for {}{}\n", kEraseLine, has_colors_ ? kDim : "",
                    duration_text(seconds_since(reasoning_begin_)), has_colors_ ? kPlain : "");
  terminal_.flush();
}

bool AnswerView::take(const ChatDelta& delta) {
  if (delta.kind == ChatDelta::Kind::kToolCall)
    return write(delta.call.name + delta.call.arguments);  // no tools were given: the call is plain text
  if (delta.kind == ChatDelta::Kind::kContent) {
    if (is_reasoning_ && !delta.text.empty()) end_reasoning();
    return write(delta.text);
  }
  if (!is_reasoning_) begin_reasoning();
  ++reasoning_pieces_;
  if (reasoning_ == ReasoningView::kShow) return write(delta.text);
  constexpr double kRedraw = 0.2;
  if (reasoning_ == ReasoningView::kFold && is_terminal_ && seconds_since(drawn_) > kRedraw) {
    drawn_ = std::chrono::steady_clock::now();
    terminal_.print("{}thinking, {} tokens ...", kEraseLine, reasoning_pieces_);
    terminal_.flush();
  }
  return !terminal_.reader_is_gone();
}

void AnswerView::finish() {
  if (is_reasoning_) end_reasoning();
  if (!ends_with_newline_ || !has_written_) terminal_.write("\n");
  terminal_.flush();
}

}  // namespace redline::cli
