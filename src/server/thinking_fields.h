// Fields that turn a model's thinking on or off, and say where it is shown.
#pragma once

#include <optional>
#include <string>

#include "server/schema.h"

namespace redline::server {

/// reasoning_effort, enable_thinking and chat_template_kwargs, which are variables of chat templates.
const std::vector<Field>& thinking_fields();
/// The variables of a checked body that has these fields. Those of chat_template_kwargs are taken as they are.
Json thinking_variables(const Json& body);
/// Sets the variables under all names that templates have for them: `enable_thinking` (Qwen, GLM, SmolLM), `thinking`
/// (DeepSeek, Granite), and `reasoning_effort`, which also turns thinking off (none) or on (any other but minimal).
/// `effort`: "" or "auto": none is given. A variable that is set already stays.
void set_thinking(Json& variables, std::optional<bool> is_enabled, const std::string& effort);

/// Where an answer has its reasoning.
enum class ReasoningPlace : uint8_t {
  kApart,    ///< in a field of its own
  kContent,  ///< in the content, between <think> and </think>
  kNowhere,
};
/// include_reasoning and reasoning_format, of chats.
const std::vector<Field>& reasoning_place_fields();
ReasoningPlace reasoning_place_of(const Json& body);

}  // namespace redline::server
