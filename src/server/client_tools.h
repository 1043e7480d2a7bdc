// The tools of a request: which of them the model may call, under which names it sees them, and how a call of one is
// answered. Programs list tools that only their vendor's servers run: they are skipped, and named in X-Redline-Ignored.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/endpoint.h"
#include "server/schema.h"

namespace redline::server {

/// A tool as the client calls it.
struct ClientTool {
  std::string name;
  std::string space;       ///< the namespace that holds it; "": none
  bool is_custom = false;  ///< takes a text, which the model gives as the only argument `input`
  Json grammar = nullptr;  ///< a custom tool's `format` of type grammar, which a demanded call follows; null: none
  bool is_strict = false;  ///< a keyword of its schema that a demanded call cannot follow is an error
};

/// The result of reading `tools` of a request.
struct ClientTools {
  Json functions = Json::array();           ///< in the shape of OpenAI's chat API, under the model's names
  std::map<std::string, ClientTool> known;  ///< by the model's name
  std::vector<std::string> skipped;         ///< what X-Redline-Ignored says of the others: "tools[web_search]"

  /// The tool of a call that the model wrote; one that it invented is a function of that name.
  ClientTool find(const std::string& name) const;
  /// Tools for the prompt; null where there are none.
  Json for_prompt() const { return functions.empty() ? Json() : functions; }
};

/// Tools of /v1/responses: function, custom, and namespace with functions and custom tools in it.
Outcome<ClientTools> response_tools(const Json& tools);
/// Tools of /v1/chat/completions: function, custom.
Outcome<ClientTools> chat_tools(const Json& tools);
/// Tools of /v1/messages: those with an input_schema.
Outcome<ClientTools> message_tools(const Json& tools);

/// Adds the names of skipped tools or items to those that the answer lists, each once.
void note_ignored(Call& call, const std::vector<std::string>& names);

/// The name under which the model sees a tool of a namespace.
std::string name_in_space(const std::string& space, const std::string& name);

/// The arguments with which a custom tool is called as a function, and the text in them: what `input` says, or all of
/// it where the model wrote something else.
std::string custom_arguments(const std::string& input);
std::string custom_input(const std::string& arguments);

/// The demand of `tool_choice`.
struct ToolDemand {
  bool is_forced = false;
  std::string name;  ///< the model's name of the tool that must be called; "": any
};
/// OpenAI's two APIs take a string, a function, a custom tool, or allowed_tools, which leaves only these in `tools`.
/// `is_chat`: how the Chat API writes it. 400: a tool that the server does not run, or no name.
Outcome<ToolDemand> tool_demand(const Json& choice, ClientTools& tools, bool is_chat);

/// The schema of `tool_choice` where it is an object.
extern const Schema tool_choice_schema;

}  // namespace redline::server
