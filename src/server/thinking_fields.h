// Fields that turn a model's thinking on or off, and select where it is shown.
#pragma once

#include <string>

#include "server/schema.h"

namespace redline::server {

/// Returns the fields reasoning_effort, enable_thinking and chat_template_kwargs, which are variables of chat
/// templates.
const std::vector<Field>& thinking_fields();
/// Returns the thinking that a checked body with these fields selects, in the form of ChatInput::thinking.
std::string thinking_of(const Json& body);
/// Returns it for a switch and an effort. `effort` "" or "auto": none is given.
std::string thinking_of(std::optional<bool> is_enabled, const std::string& effort);

/// The place of the reasoning in an answer.
enum class ReasoningPlace : uint8_t {
  kApart,    ///< in its own field
  kContent,  ///< in the content, between <think> and </think>
  kNowhere,
};
/// Returns the fields include_reasoning and reasoning_format of chats.
const std::vector<Field>& reasoning_place_fields();
ReasoningPlace reasoning_place_of(const Json& body);

}  // namespace redline::server
