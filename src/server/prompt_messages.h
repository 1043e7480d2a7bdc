// Adapts messages to chat templates: one system message, and tools as text for templates without tools.
#pragma once

#include "server/json.h"

namespace redline::server {

enum class SystemMessages : uint8_t {
  kLeading,  ///< the system messages before the first other message become one
  kAll,      ///< all system messages become one, at the beginning
};
/// Returns `messages` with fewer system messages, whose texts are joined by an empty line. Many templates accept only
/// one, and refuse or omit others.
Json merged_system_messages(Json messages, SystemMessages which);
/// Returns true if a system message follows another message.
bool has_later_system_message(const Json& messages);
/// Returns true if `prompt` has the text of all system messages.
bool writes_system_messages(const std::string& prompt, const Json& messages);

/// For templates without tools: returns `messages` with calls and results as text, in the markers of Hermes, which the
/// reader of answers expects of such models too.
Json tool_messages_as_text(const Json& messages);
/// Returns true if `messages` have calls or results.
bool has_tool_messages(const Json& messages);
/// Returns the text for the system message that describes `tools`, a list in the shape of OpenAI's chat API.
std::string tools_as_text(const Json& tools);
/// Returns `messages` with `text` at the end of the system message. With `in_user` it goes before the first user
/// message, because some templates accept no system message.
Json with_instructions(Json messages, const std::string& text, bool in_user);

}  // namespace redline::server
