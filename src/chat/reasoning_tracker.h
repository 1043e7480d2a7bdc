// Finds the end of the reasoning at the beginning of an answer, token by token.
#pragma once

#include <string>
#include <string_view>

namespace redline {

class ReasoningTracker {
 public:
  /// If the template has no reasoning markers, or the prompt skips the reasoning, it has ended from the beginning.
  ReasoningTracker(std::string_view chat_template, std::string_view prompt);
  /// Adds the text of a token, or the name of a control token.
  void add(std::string_view text);
  bool is_reasoning() const { return state_ == State::kReasoning; }
  /// Returns true if the answer has begun. No more text must be added then.
  bool has_ended() const { return state_ == State::kEnded; }
  const std::string& end_marker() const { return end_; }

 private:
  enum class State : uint8_t { kBegin, kReasoning, kEnded };
  State state_ = State::kEnded;
  std::string header_, open_, end_;
  std::string text_;  ///< kBegin: the whole text; kReasoning: the end of it, which may be part of the marker
};

}  // namespace redline
