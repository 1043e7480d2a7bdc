// Readers for the syntaxes in which models write tool calls. Each reads one block after its opening marker, from text
// that may still grow.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "chat/plain_values.h"
#include "redline/chat.h"

namespace redline {

/// The tools of a request, and the rules for the values of their parameters in formats that write these without quotes.
class ToolSchemas {
 public:
  ToolSchemas() = default;
  /// `tools_json`: OpenAI's list of tools; any other text gives no tools.
  explicit ToolSchemas(std::string_view tools_json);
  /// Converts a value that is written as plain text to JSON, by the schema of the parameter, or without one by the form
  /// of the text.
  std::string value(std::string_view tool, std::string_view parameter, std::string_view text) const;
  bool has(std::string_view tool) const { return rules_.find(tool) != rules_.end(); }
  /// Returns true if the text begins like {"name": .., with the name of a tool or the beginning of one.
  bool begins_json_call(std::string_view text) const;

 private:
  std::map<std::string, std::map<std::string, PlainValueRule, std::less<>>, std::less<>> rules_;
};

/// The syntax of a block. `read` determines which members are used.
struct ToolCallSyntax {
  /// kMore: the text so far can still become calls. kFailed: it cannot. kDone: `used` bytes of it are `calls`.
  enum class Outcome : uint8_t { kMore, kFailed, kDone };
  struct Reading {
    Outcome outcome = Outcome::kFailed;
    size_t used = 0;
    std::vector<ChatToolCall> calls = {};
  };
  using Read = Reading (*)(const ToolCallSyntax& syntax, std::string_view text, bool is_all,
                           const ToolSchemas& schemas);

  const char* begin = "";  ///< opening marker; "": the answer begins with the call, a JSON object
  const char* end = "";    ///< closing marker; "": none
  Read read = nullptr;
  const char* first = "";  ///< meaning depends on `read`; see the functions below
  const char* second = "";
  const char* parameter = "";
  const char* parameter_end = "";
  bool writes_list = false;  ///< for JSON calls: the family writes a list of them
  bool only_tools = false;   ///< text counts as a call only if it calls one of the request's tools
};

// Values of ToolCallSyntax::read, with the syntax that each reads.

/// {"name": .., "arguments": {..}}, a list of these, or several one after the other. Also "parameters", "tool_name";
/// `first` and `second`: the family's keys for arguments and name, if they differ.
ToolCallSyntax::Reading read_json_calls(const ToolCallSyntax&, std::string_view, bool, const ToolSchemas&);
/// [{"name": {arguments}}, ..].
ToolCallSyntax::Reading read_keyed_calls(const ToolCallSyntax&, std::string_view, bool, const ToolSchemas&);
/// name `first` {arguments}; a `second` within the name ends it (Mistral's [CALL_ID]) or ends an id before it (Solar).
ToolCallSyntax::Reading read_named_json(const ToolCallSyntax&, std::string_view, bool, const ToolSchemas&);
/// `first`name">, then parameters (`parameter`key">value`parameter_end`) and `second`; several of these before `end`.
ToolCallSyntax::Reading read_xml_calls(const ToolCallSyntax&, std::string_view, bool, const ToolSchemas&);
/// name, then <arg_key>key</arg_key><arg_value>value</arg_value>. `first`: suffix of the tags' names.
ToolCallSyntax::Reading read_key_value_call(const ToolCallSyntax&, std::string_view, bool, const ToolSchemas&);
/// <invoke name="name"><key>value</key></invoke>, nested, with `first` before each tag.
ToolCallSyntax::Reading read_nested_xml(const ToolCallSyntax&, std::string_view, bool, const ToolSchemas&);
/// [name(key=value, ..), ..] with Python's literals. Also a single name.call(..).
ToolCallSyntax::Reading read_python_calls(const ToolCallSyntax&, std::string_view, bool, const ToolSchemas&);
/// name{key:value,..} with `first` around strings.
ToolCallSyntax::Reading read_gemma_call(const ToolCallSyntax&, std::string_view, bool, const ToolSchemas&);

}  // namespace redline
