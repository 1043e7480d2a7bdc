// What a chat model writes, as content, reasoning and tool calls, while it writes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/tool_call_syntax.h"

namespace redline {

/// How one family marks reasoning and tool calls: a row of chat_formats.cc.
struct ChatOutputFormat {
  static constexpr size_t kMaxWords = 3, kMaxSyntaxes = 3, kMaxIgnored = 6;
  const char* name = "";
  const char* words[kMaxWords] = {};           ///< a template of this family contains all of them
  ToolCallSyntax syntaxes[kMaxSyntaxes] = {};  ///< without `read`: unused
  const char* ignored[kMaxIgnored] = {};       ///< markers that are not part of the content
  bool has_channels = false;                   ///< messages with headers: <|channel|>analysis<|message|>...<|end|>
  const char* channel_call = "";               ///< how the calls of such a message begin; "": it is the arguments
  const char* calls_begin = "";                ///< what the family writes before all calls of an answer, and after them
  const char* calls_end = "";
};
struct ReasoningMarkers {
  const char* open = "";  ///< "": the family does not reason
  const char* close = "";
};

/// The row of a template's text. The last row, "plain", has no tool calls.
const ChatOutputFormat& chat_output_format(std::string_view chat_template);
/// The same, but the row of Hermes for "plain": the format for models whose template has no tools.
const ChatOutputFormat& tool_call_format(std::string_view chat_template);
const ChatOutputFormat* find_chat_output_format(std::string_view name);
ReasoningMarkers reasoning_markers(std::string_view chat_template);

struct ChatOutput {
  std::string content, reasoning;
  std::vector<ChatToolCall> tool_calls;
  void add(const ChatDelta& delta);
};

struct ChatOutputOptions {
  std::string_view chat_template;  ///< its text
  std::string_view prompt;         ///< the rendered prompt, or its end: it may have opened the reasoning already
  std::string_view tools_json;     ///< types of parameters, for formats that write values without quotes
};

/// Takes the generated text in pieces of any size, special tokens included. The deltas joined do not depend on the
/// pieces. Text that looks like a call but is not one is content.
class ChatOutputParser final : public ChatReader {
 public:
  explicit ChatOutputParser(const ChatOutputOptions& options);
  void push(std::string_view piece, std::vector<ChatDelta>& out) override;
  void finish(std::vector<ChatDelta>& out) override;

 private:
  enum class State : uint8_t { kContent, kReasoning, kCall, kHeader };
  struct Marker {
    std::string text;
    enum class Kind : uint8_t { kReasoning, kCall, kIgnored, kHeader, kMessageEnd } kind;
    const ToolCallSyntax* syntax;
  };

  void run(bool is_all, std::vector<ChatDelta>& out);
  bool run_content(bool is_all, std::vector<ChatDelta>& out);
  bool run_reasoning(bool is_all, std::vector<ChatDelta>& out);
  bool run_call(bool is_all, std::vector<ChatDelta>& out);
  bool run_header(bool is_all);
  void emit(ChatDelta::Kind kind, std::string_view text, std::vector<ChatDelta>& out);

  const ChatOutputFormat* format_;
  ReasoningMarkers reasoning_;
  ToolSchemas schemas_;
  std::vector<Marker> markers_;
  std::vector<std::string> reasoning_ends_;
  State state_ = State::kContent;
  std::string buffer_;
  const ToolCallSyntax* syntax_ = nullptr;  ///< kCall
  ToolCallSyntax channel_syntax_;           ///< of a message to a tool
  std::string channel_tool_;                ///< its name
  std::string spaces_;                      ///< white space at the end of the content or reasoning so far
  bool has_content_ = false, has_reasoning_ = false, has_answer_parts_ = false;
  bool may_begin_with_call_ = false;
  size_t num_calls_ = 0;
};

/// All of it at once.
ChatOutput parse_chat_output(const ChatOutputOptions& options, std::string_view text);

}  // namespace redline
