// Where the reasoning at the beginning of an answer ends, found token by token.
#pragma once

#include <string>
#include <string_view>

namespace redline {

class ReasoningTracker {
 public:
  /// A template without reasoning markers, or a prompt that leaves the reasoning out: there is none.
  ReasoningTracker(std::string_view chat_template, std::string_view prompt);
  /// Adds the text of a token; of a control token its name.
  void add(std::string_view text);
  bool is_reasoning() const { return state_ == State::kReasoning; }
  /// The answer has begun: nothing more is to be added.
  bool has_ended() const { return state_ == State::kEnded; }
  const std::string& end_marker() const { return end_; }

 private:
  enum class State : uint8_t { kBegin, kReasoning, kEnded };
  State state_ = State::kEnded;
  std::string header_, open_, end_;
  std::string text_;  ///< kBegin: all of it; kReasoning: the end, which may be part of the marker
};

}  // namespace redline
