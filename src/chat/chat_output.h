// Parses the output of a chat model while it is generated, into content, reasoning and tool calls.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/tool_call_syntax.h"

namespace redline {

/// Markers of a family's reasoning.
struct ReasoningMarkers {
  const char* open = "";  ///< "": the family does not reason
  const char* close = "";
  const char* separator = "";  ///< white space that the family's models write between the end marker and the answer
  const char* header = "";     ///< further text that the family writes between the end marker and the answer
  const char* skipped = "";    ///< end of a prompt that skips the reasoning; "": `close`
};

/// The switch that turns the reasoning of a chat template off and on.
struct ThinkingSwitch {
  /// a variable of the template, or a word in the system message, such as "/no_think"; "": no switch
  const char* name = "";
  const char* off = "";  ///< value of the variable as JSON, or word in the system message; "": there is none
  const char* on = "";
  /// values for less and more effort, if the variable is an effort; "": the name of the effort itself
  const char* low = "";
  const char* high = "";
};

/// The output format of one family: a row of chat_formats.cc. It has everything that is specific to the family: the
/// markers of the reasoning and its switch, the syntax of calls, and the texts around the answer.
///
/// If a limit ends the text within a call, the call is kept if its arguments are complete, so that only closing markers
/// of `syntaxes` are missing; otherwise it is dropped.
struct ChatOutputFormat {
  static constexpr size_t kMaxWords = 3, kMaxSyntaxes = 3, kMaxIgnored = 6;
  const char* name = "";
  const char* words[kMaxWords] = {};           ///< a template of this family contains all of them
  ToolCallSyntax syntaxes[kMaxSyntaxes] = {};  ///< entries without `read` are unused
  const char* ignored[kMaxIgnored] = {};       ///< markers that are not part of the content
  bool has_channels = false;                   ///< messages with headers: <|channel|>analysis<|message|>...<|end|>
  const char* channel_call = "";  ///< beginning of the calls in such a message; "": the message is the arguments
  const char* calls_begin = "";   ///< text before all calls of an answer; calls_end: text after them
  const char* calls_end = "";
  const char* answer_begin = "";  ///< text before an answer that is not a call
  const char* answer_end = "";    ///< text that may follow such an answer
  /// Used if the template has these markers; otherwise the common markers in the template are used.
  ReasoningMarkers reasoning = {};
  /// Used if the template obeys it; otherwise the common switches are tried.
  ThinkingSwitch thinking = {};
};

/// Returns the row for a template's text. The last row, "plain", has no tool calls.
const ChatOutputFormat& chat_output_format(std::string_view chat_template);
/// Returns chat_output_format(), but the row of Hermes instead of "plain": the format for models whose template has no
/// tools.
const ChatOutputFormat& tool_call_format(std::string_view chat_template);
const ChatOutputFormat* find_chat_output_format(std::string_view name);
ReasoningMarkers reasoning_markers(std::string_view chat_template);
/// Returns the switches that a template with this text may have, the more specific ones first.
std::vector<ThinkingSwitch> possible_thinking_switches(std::string_view chat_template);

/// The part of an answer in which a rendered prompt ends.
enum class AnswerPlace : uint8_t {
  kAnswer,     ///< the prompt ends before the answer, which may begin with reasoning
  kReasoning,  ///< the prompt ends in the reasoning
  kHeader,     ///< the prompt ends in the header of a message
  kContent,    ///< the prompt has skipped the reasoning and ends after it
};
AnswerPlace answer_place(std::string_view chat_template, std::string_view prompt);

/// Knowledge about the content, from the request's constraint.
enum class ContentKind : uint8_t {
  kFree,  ///< nothing is known: white space around the content is dropped if there is reasoning or a call
  /// the content matches a constraint: after the reasoning only the family's separator is dropped, no other space
  kMatched,
  kJson,  ///< the content is JSON: markers in it are text
};

/// The parts of a complete answer.
struct ChatOutput {
  std::string content, reasoning;
  std::vector<ChatToolCall> tool_calls;
  void add(const ChatDelta& delta);
};

struct ChatOutputOptions {
  std::string_view chat_template;  ///< text of the template
  std::string_view prompt;         ///< the rendered prompt, or its end; it may already have opened the reasoning
  /// tools with the types of their parameters, for formats that write values without quotes
  std::string_view tools_json;
  ContentKind content = ContentKind::kFree;
};

/// Takes the generated text in pieces of any size, special tokens included. The joined deltas do not depend on how the
/// text was split. Text that looks like a call but is not one is content, unless the text is cut within it
/// (ChatReader).
class ChatOutputParser final : public ChatReader {
 public:
  explicit ChatOutputParser(const ChatOutputOptions& options);
  void push(std::string_view piece, std::vector<ChatDelta>& out) override;
  void finish(std::vector<ChatDelta>& out, bool was_cut = false) override;

  /// A part of the text: either of the answer, or of the rest (reasoning, headers and their markers).
  struct Part {
    size_t bytes;
    bool is_answer;
  };
  /// Returns the parts that are certain and have not been returned before. Text that may still become a marker is not
  /// certain.
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
  ToolCallSyntax channel_syntax_;           ///< syntax of a message to a tool
  std::string channel_tool_;                ///< name of that tool
  std::string spaces_;                      ///< white space at the end of the content or reasoning so far
  bool has_content_ = false, has_reasoning_ = false, has_answer_parts_ = false;
  bool may_begin_with_call_ = false;
  size_t num_calls_ = 0;
  bool has_tools_ = false, was_cut_ = false;
  ContentKind content_ = ContentKind::kFree;
  std::string_view separator_;  ///< the part of the separator that is still expected
  int json_depth_ = 0;          ///< kJson
  bool in_string_ = false, is_escaped_ = false, is_scalar_ = false;
  std::vector<Part> parts_;
  size_t bytes_ahead_ = 0;  ///< bytes of buffer_ that take_parts() has already returned
};

/// Parses a complete text.
ChatOutput parse_chat_output(const ChatOutputOptions& options, std::string_view text);

}  // namespace redline
