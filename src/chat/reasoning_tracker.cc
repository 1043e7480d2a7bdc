#include "chat/reasoning_tracker.h"

#include "chat/chat_output.h"

namespace redline {

ReasoningTracker::ReasoningTracker(std::string_view chat_template, std::string_view prompt) {
  const ReasoningMarkers markers = reasoning_markers(chat_template);
  const AnswerPlace place = answer_place(chat_template, prompt);
  open_ = markers.open;
  end_ = markers.close;
  if (open_.empty() || place == AnswerPlace::kContent) return;
  if (chat_output_format(chat_template).has_channels && place == AnswerPlace::kAnswer) header_ = "<|start|>assistant";
  state_ = place == AnswerPlace::kReasoning ? State::kReasoning : State::kBegin;
}

void ReasoningTracker::add(std::string_view text) {
  if (state_ == State::kEnded) return;
  text_ += text;
  if (state_ == State::kBegin) {
    const size_t first = header_.empty() ? text_.find_first_not_of(" \t\r\n") : 0;
    const std::string_view begin = std::string_view(text_).substr(std::min(first, text_.size()));
    const std::string open = header_ + open_;
    if (begin.size() < open.size()) {
      if (!std::string_view(open).starts_with(begin)) state_ = State::kEnded;
      return;
    }
    state_ = begin.starts_with(open) ? State::kReasoning : State::kEnded;
    text_ = begin.substr(std::min(open.size(), begin.size()));
  }
  if (state_ == State::kReasoning && text_.find(end_) != std::string::npos) state_ = State::kEnded;
  if (text_.size() >= end_.size()) text_.erase(0, text_.size() - end_.size() + 1);
}

}  // namespace redline
