// What a chat template is rendered from.
#pragma once

#include <string_view>

namespace redline {

/// A conversation in the form of OpenAI's API, as JSON text. Object members keep their order.
struct ChatInput {
  std::string_view messages_json;   ///< a list of messages
  std::string_view tools_json;      ///< a list of tools; "": none are given
  std::string_view variables_json;  ///< an object of further variables, such as enable_thinking or documents; "": none
  bool add_generation_prompt = true;  ///< end with the beginning of the assistant's answer
};

}  // namespace redline
