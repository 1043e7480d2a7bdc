// The ways in which models write tool calls. Each reads one block after its opening marker, from text that may still
// grow.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "chat/plain_values.h"
#include "redline/chat.h"

namespace redline {

/// The tools of a request, and the values of their parameters for formats that write these without quotes.
class ToolSchemas {
 public:
  ToolSchemas() = default;
  /// OpenAI's list of tools; anything else gives none.
  explicit ToolSchemas(std::string_view tools_json);
  /// A value written as plain text, as JSON: by the schema of the parameter, and without one by the form of the text.
  std::string value(std::string_view tool, std::string_view parameter, std::string_view text) const;
  bool has(std::string_view tool) const { return rules_.find(tool) != rules_.end(); }
  /// The text begins as {"name": .. does, with one of the tools or a part of its name.
  bool begins_json_call(std::string_view text) const;

 private:
  std::map<std::string, std::map<std::string, PlainValueRule, std::less<>>, std::less<>> rules_;
};

/// How a block is written; which members count depends on `read`.
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

  const char* begin = "";  ///< opening marker; "": the answer begins with the call itself, a JSON object
  const char* end = "";    ///< closing marker; "": none
  Read read = nullptr;
  const char* first = "";  ///< see the functions
  const char* second = "";
  const char* parameter = "";
  const char* parameter_end = "";
  bool writes_list = false;  ///< of JSON calls: the family writes a list of them
  bool only_tools = false;   ///< only a call of one of the request's tools is a call
};

// The values of ToolCallSyntax::read.

/// {"name": .., "arguments": {..}}, a list of these, or several one after the other. Also "parameters", "tool_name";
/// `first` and `second`: how the family calls arguments and name, if otherwise.
ToolCallSyntax::Reading read_json_calls(const ToolCallSyntax&, std::string_view, bool, const ToolSchemas&);
/// [{"name": {arguments}}, ..].
ToolCallSyntax::Reading read_keyed_calls(const ToolCallSyntax&, std::string_view, bool, const ToolSchemas&);
/// name `first` {arguments}; a `second` within the name ends it (Mistral's [CALL_ID]) or ends an id before it (Solar).
ToolCallSyntax::Reading read_named_json(const ToolCallSyntax&, std::string_view, bool, const ToolSchemas&);
/// `first`name">, then parameters (`parameter`key">value`parameter_end`) and `second`; several of these before `end`.
ToolCallSyntax::Reading read_xml_calls(const ToolCallSyntax&, std::string_view, bool, const ToolSchemas&);
/// name, then <arg_key>key</arg_key><arg_value>value</arg_value>. `first`: what follows the tags' names.
ToolCallSyntax::Reading read_key_value_call(const ToolCallSyntax&, std::string_view, bool, const ToolSchemas&);
/// <invoke name="name"><key>value</key></invoke>, nested, with `first` before each tag.
ToolCallSyntax::Reading read_nested_xml(const ToolCallSyntax&, std::string_view, bool, const ToolSchemas&);
/// [name(key=value, ..), ..] with Python's literals; name.call(..) alone too.
ToolCallSyntax::Reading read_python_calls(const ToolCallSyntax&, std::string_view, bool, const ToolSchemas&);
/// name{key:value,..} with `first` around strings.
ToolCallSyntax::Reading read_gemma_call(const ToolCallSyntax&, std::string_view, bool, const ToolSchemas&);

}  // namespace redline
