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
  /// Arguments of tool calls become what the template expects, an object or a JSON text: OpenAI's clients send text,
  /// and most templates take objects. False: as transformers does it, they stay what they are.
  bool adapt_arguments = false;
  /// How much the model thinks before it answers: "none" or "off", "on", or an effort ("minimal", "low", "medium",
  /// "high", "xhigh", "max"). Sets the template's own switch (ModelInfo::thinking_switch), and reasoning_effort where
  /// the template has that variable; variables_json goes first. "" or "auto": as the template does by itself.
  std::string_view thinking = {};
};

/// A call that a model asks for.
struct ChatToolCall {
  std::string id;  ///< as the model wrote it; "": it writes none
  std::string name;
  std::string arguments;  ///< a JSON object
};

/// A piece of the answer. All pieces of one kind, joined, are the whole.
struct ChatDelta {
  enum class Kind : uint8_t { kContent, kReasoning, kToolCall };
  Kind kind = Kind::kContent;
  std::string text;   ///< kContent, kReasoning
  ChatToolCall call;  ///< kToolCall: a whole call. It is not split, because text that turns out to be none is content
  size_t index = 0;   ///< kToolCall: 0 for the first
};

/// Splits generated text into content, reasoning and tool calls, in the format of the model's family. Takes the text in
/// pieces of any size, with its control tokens (GenerateRequest::special); the deltas joined do not depend on the
/// pieces.
class ChatReader {
 public:
  virtual ~ChatReader() = default;
  virtual void push(std::string_view piece, std::vector<ChatDelta>& out) = 0;
  /// The end of the text: what was held back. `was_cut`: the text ended by a limit, not by itself (FinishReason is not
  /// kStop). Then a call whose arguments are whole is a call, and of any other one nothing is left, as of a marker that
  /// has only begun.
  virtual void finish(std::vector<ChatDelta>& out, bool was_cut = false) = 0;
};

}  // namespace redline
