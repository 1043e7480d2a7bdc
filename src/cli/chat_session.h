// A conversation with a model: its messages, and the tokens that the model has read of them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/json.h"
#include "redline/text.h"
#include "server/known_texts.h"

namespace redline::cli {

struct ChatMessage {
  std::string role, content;
  std::string reasoning;  ///< for an answer: the reasoning that the model wrote before it
};

struct ChatTurn {
  GenerateResult result;
  int64_t reasoning_tokens = 0;
};

/// A conversation with a model.
class ChatSession {
 public:
  /// `variables_json`: variables of the template, as in ChatInput.
  ChatSession(TextEngine& engine, std::string variables_json)
      : engine_(engine), variables_json_(std::move(variables_json)) {}

  std::vector<ChatMessage>& messages() { return messages_; }
  const std::vector<ChatMessage>& messages() const { return messages_; }
  /// Returns the system message, which is always the first; "": none.
  std::string system() const;
  void set_system(const std::string& text);
  /// Sets the thinking, as in ChatInput.
  void set_thinking(std::string thinking) { thinking_ = std::move(thinking); }

  /// Removes the last question and the messages after it, and returns the question; "": there is none.
  std::string drop_last_turn();
  /// Removes everything but the system message.
  void reset();

  /// Generates an answer to the messages, the last of which must be the user's, and adds it. `request` gives sampling,
  /// limits, constraint and adapters; its prompt is set here. `on_delta` gets the parts of the answer, and `on_step` is
  /// called between the steps of a long prompt. If one returns false, the answer ends, and its text so far is kept. The
  /// prompt reuses the tokens of earlier turns whose text the template has not changed, so that only new text is
  /// computed. Errors of render_chat and generate; the conversation is then unchanged.
  Result<ChatTurn> answer(GenerateRequest request, const std::function<bool(const ChatDelta&)>& on_delta,
                          const std::function<bool()>& on_step);

  /// Returns {"model", "messages"} in the form of OpenAI's API, with reasoning_content.
  Json to_json() const;
  /// Loads the result of to_json(), or a plain list of messages. invalid_argument: it is neither; the conversation is
  /// unchanged.
  Status load(const std::string& text);

 private:
  Json messages_json() const;

  TextEngine& engine_;
  std::string variables_json_, thinking_;
  std::vector<ChatMessage> messages_;
  server::KnownTexts known_;  ///< earlier turns: prompt and answer, with control tokens
};

}  // namespace redline::cli
