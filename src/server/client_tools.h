// The tools of a request: which of them the model may call, the names that the model sees, and how a call is answered.
// Programs also list tools that only their vendor's servers run: these are skipped, and listed in X-Redline-Ignored.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/endpoint.h"
#include "server/schema.h"

namespace redline::server {

/// A tool under the client's names.
struct ClientTool {
  std::string name;
  std::string space;       ///< namespace of the tool; "": none
  bool is_custom = false;  ///< the tool takes a text, which the model passes as the only argument `input`
  /// The `format` of type grammar of a custom tool, which constrains a required call; null: none.
  Json grammar = nullptr;
  bool is_strict = false;  ///< a keyword of the tool's schema that a required call cannot follow is an error
};

/// The result of reading `tools` of a request.
struct ClientTools {
  Json functions = Json::array();           ///< in the shape of OpenAI's chat API, under the model's names
  std::map<std::string, ClientTool> known;  ///< by the model's name
  std::vector<std::string> skipped;         ///< names of the other tools for X-Redline-Ignored: "tools[web_search]"

  /// Returns the tool of a call that the model wrote. A name that the model invented becomes a function of that name.
  ClientTool find(const std::string& name) const;
  /// Returns the tools for the prompt; null if there are none.
  Json for_prompt() const { return functions.empty() ? Json() : functions; }
};

/// Reads tools of /v1/responses: function, custom, and namespace with functions and custom tools in it.
Outcome<ClientTools> response_tools(const Json& tools);
/// Reads tools of /v1/chat/completions: function, custom.
Outcome<ClientTools> chat_tools(const Json& tools);
/// Reads tools of /v1/messages: those with an input_schema.
Outcome<ClientTools> message_tools(const Json& tools);

/// Adds the names of skipped tools or items to the ignored names of the answer, each once.
void note_ignored(Call& call, const std::vector<std::string>& names);

/// Returns the model's name of a tool in a namespace.
std::string name_in_space(const std::string& space, const std::string& name);

/// custom_arguments returns the arguments with which a custom tool is called as a function. custom_input returns the
/// text in such arguments: the value of `input`, or all of it if the model wrote something else.
std::string custom_arguments(const std::string& input);
std::string custom_input(const std::string& arguments);

/// The value of `tool_choice`.
struct ToolDemand {
  bool is_forced = false;
  std::string name;  ///< the model's name of the required tool; "": any
};
/// Reads `tool_choice` of OpenAI's two APIs: a string, a function, a custom tool, or allowed_tools, which removes all
/// others from `tools`. `is_chat`: in the shape of the Chat API. 400: a tool that the server does not run, or no name.
Outcome<ToolDemand> tool_demand(const Json& choice, ClientTools& tools, bool is_chat);

/// The schema of `tool_choice` in object form.
extern const Schema tool_choice_schema;

}  // namespace redline::server
