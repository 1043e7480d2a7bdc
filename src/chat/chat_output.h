// What a chat model writes, as content, reasoning and tool calls, while it writes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/tool_call_syntax.h"

namespace redline {

/// How a family marks its reasoning.
struct ReasoningMarkers {
  const char* open = "";  ///< "": the family does not reason
  const char* close = "";
  const char* separator = "";  ///< white space between the end marker and the answer, as the family's models write it
  const char* header = "";     ///< what the family writes between the end marker and the answer besides
  const char* skipped = "";    ///< how a prompt ends that leaves out the reasoning; "": with `close`
};

/// The switch that turns the reasoning of a chat template off and on.
struct ThinkingSwitch {
  const char* name = "";  ///< a variable of the template; "/no_think": this word in the system message. "": nothing
  const char* off = "";   ///< its values as JSON, or the words; "": there is none
  const char* on = "";
  const char* low = "";  ///< of variables that are an effort: values for less and for more; "": the effort as it is
  const char* high = "";
};

/// The format of one family: a row of chat_formats.cc. It has all that the family does in a way of its own: the
/// reasoning's markers and its switch, the syntax of calls, and the texts around the answer.
///
/// A text that a limit cuts within a call leaves the call if its arguments are whole, so that only closing markers of
/// `syntaxes` are missing, and otherwise nothing.
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
  const char* answer_begin = "";  ///< what the family writes before an answer that is text
  const char* answer_end = "";    ///< what it may write after that
  /// Where the template has its markers; else the common markers that the template has.
  ReasoningMarkers reasoning = {};
  /// Where the template obeys it; else the common switches.
  ThinkingSwitch thinking = {};
};

/// The row of a template's text. The last row, "plain", has no tool calls.
const ChatOutputFormat& chat_output_format(std::string_view chat_template);
/// The same, but the row of Hermes for "plain": the format for models whose template has no tools.
const ChatOutputFormat& tool_call_format(std::string_view chat_template);
const ChatOutputFormat* find_chat_output_format(std::string_view name);
ReasoningMarkers reasoning_markers(std::string_view chat_template);
/// The switches that a template of this text may have, the more specific ones first.
std::vector<ThinkingSwitch> possible_thinking_switches(std::string_view chat_template);

/// Where a rendered prompt leaves off.
enum class AnswerPlace : uint8_t {
  kAnswer,     ///< at the beginning of the answer, which may begin with reasoning
  kReasoning,  ///< in the reasoning
  kHeader,     ///< in the header of a message
  kContent,    ///< behind the reasoning, which the prompt has left out
};
AnswerPlace answer_place(std::string_view chat_template, std::string_view prompt);

/// What is known about the content.
enum class ContentKind : uint8_t {
  kFree,     ///< nothing: white space around it is dropped where there is reasoning or a call
  kMatched,  ///< it matches a constraint: after the reasoning, the family's separator is dropped and no other space
  kJson,     ///< it is JSON: markers in it are text
};

struct ChatOutput {
  std::string content, reasoning;
  std::vector<ChatToolCall> tool_calls;
  void add(const ChatDelta& delta);
};

struct ChatOutputOptions {
  std::string_view chat_template;  ///< its text
  std::string_view prompt;         ///< the rendered prompt, or its end: it may have opened the reasoning already
  std::string_view tools_json;     ///< types of parameters, for formats that write values without quotes
  ContentKind content = ContentKind::kFree;
};

/// Takes the generated text in pieces of any size, special tokens included. The deltas joined do not depend on the
/// pieces. Text that looks like a call but is not one is content, unless the text is cut within it (ChatReader).
class ChatOutputParser final : public ChatReader {
 public:
  explicit ChatOutputParser(const ChatOutputOptions& options);
  void push(std::string_view piece, std::vector<ChatDelta>& out) override;
  void finish(std::vector<ChatDelta>& out, bool was_cut = false) override;

  /// The text so far as parts of the answer and others: reasoning, headers and their markers.
  struct Part {
    size_t bytes;
    bool is_answer;
  };
  /// Takes the parts that are known and have not been taken. Text that may still become a marker is not known.
  std::vector<Part> take_parts();

 private:
  enum class State : uint8_t { kContent, kJson, kReasoning, kCall, kHeader };
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
  bool run_json(std::vector<ChatDelta>& out);
  bool drop_separator(bool is_all);
  bool is_cut_call() const;
  void consume(size_t bytes, bool is_answer);
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
  bool has_tools_ = false, was_cut_ = false;
  ContentKind content_ = ContentKind::kFree;
  std::string_view separator_;  ///< the part of it that is still to come
  int json_depth_ = 0;          ///< kJson
  bool in_string_ = false, is_escaped_ = false, is_scalar_ = false;
  std::vector<Part> parts_;
  size_t bytes_ahead_ = 0;  ///< of buffer_ that take_parts() has given already
};

/// All of it at once.
ChatOutput parse_chat_output(const ChatOutputOptions& options, std::string_view text);

}  // namespace redline
