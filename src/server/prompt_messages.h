// Messages as chat templates take them: one system message, and tools for templates that do not write any.
#pragma once

#include "server/json.h"

namespace redline::server {

enum class SystemMessages : uint8_t {
  kLeading,  ///< those before the first other message become one
  kAll,      ///< all become one, at the beginning
};
/// `messages` with fewer system messages, whose texts are joined by an empty line. Many templates take only one, refuse
/// others or leave them out.
Json merged_system_messages(Json messages, SystemMessages which);
/// True if one stands behind another message.
bool has_later_system_message(const Json& messages);
/// True if `prompt` has the text of all system messages.
bool writes_system_messages(const std::string& prompt, const Json& messages);

/// For a template that knows nothing of tools: the calls of `messages` and the answers to them as text, in the markers
/// of Hermes, which the reader of answers expects of such models too.
Json tool_messages_as_text(const Json& messages);
/// True if there are any.
bool has_tool_messages(const Json& messages);
/// What the system's message says of `tools`, a list in the shape of OpenAI's chat API.
std::string tools_as_text(const Json& tools);
/// `messages` with `text` at the end of the system's message; with `in_user`, before the first user's: some templates
/// take no system message.
Json with_instructions(Json messages, const std::string& text, bool in_user);

}  // namespace redline::server
