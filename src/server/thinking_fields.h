// Fields that turn a model's thinking on or off, and say where it is shown.
#pragma once

#include <string>

#include "server/schema.h"

namespace redline::server {

/// reasoning_effort, enable_thinking and chat_template_kwargs, which are variables of chat templates.
const std::vector<Field>& thinking_fields();
/// The thinking that a checked body with these fields asks for, as ChatInput::thinking has it.
std::string thinking_of(const Json& body);
/// Returns the same for a switch and an effort. `effort`: "" or "auto": none is given.
std::string thinking_of(std::optional<bool> is_enabled, const std::string& effort);

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
