// Conversations: the input of a chat template, and the parts of the model's answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace redline {

/// A conversation in the form of OpenAI's API, as JSON text. Object members keep their order.
struct ChatInput {
  std::string_view messages_json;   ///< a list of messages
  std::string_view tools_json;      ///< a list of tools; "": none are given
  std::string_view variables_json;  ///< an object of further variables, such as enable_thinking or documents; "": none
  bool add_generation_prompt = true;  ///< end with the beginning of the assistant's answer
  /// Converts arguments of tool calls to the form that the template expects, an object or a JSON text: OpenAI's clients
  /// send text, and most templates take objects. False: they are passed unchanged, as in transformers.
  bool adapt_arguments = false;
  /// How much the model thinks before it answers: "none" or "off", "on", or an effort ("minimal", "low", "medium",
  /// "high", "xhigh", "max"). Sets the template's own switch (ModelInfo::thinking_switch), and reasoning_effort where
  /// the template has that variable; variables_json takes precedence. "" or "auto": the template's default.
  std::string_view thinking = {};
};

/// A tool call that a model has generated.
struct ChatToolCall {
  std::string id;  ///< as the model wrote it; "": the model's format has no ids
  std::string name;
  std::string arguments;  ///< a JSON object
};

/// A piece of the answer. The pieces of one kind, joined, are the whole text of that kind.
struct ChatDelta {
  enum class Kind : uint8_t { kContent, kReasoning, kToolCall };
  Kind kind = Kind::kContent;
  std::string text;  ///< kContent, kReasoning
  /// kToolCall: a complete call. Calls come in one piece: text that begins like a call may turn out to be content
  ChatToolCall call;
  size_t index = 0;  ///< kToolCall: 0 for the first
};

/// Splits generated text into content, reasoning and tool calls, in the format of the model's family. Takes the text in
/// pieces of any size, with its control tokens (GenerateRequest::special); the joined deltas do not depend on how the
/// text was split.
class ChatReader {
 public:
  virtual ~ChatReader() = default;
  /// Reads the next piece of the text and appends the deltas that are certain to `out`.
  virtual void push(std::string_view piece, std::vector<ChatDelta>& out) = 0;
  /// Ends the text and appends what was held back. `was_cut`: a limit ended the text, not the model (FinishReason is
  /// not kStop). Then an unfinished call counts if its arguments are complete; otherwise it is dropped, like a marker
  /// of which only the beginning was generated.
  virtual void finish(std::vector<ChatDelta>& out, bool was_cut = false) = 0;
};

}  // namespace redline
