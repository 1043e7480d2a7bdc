// Hints for chat-trained models, and readers of templates and their variables.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace redline::cli {

/// Returns `prompt` as the first message of a conversation, for common kinds of chat template; "" for others.
std::string in_chat_format(const std::string& chat_template, const std::string& prompt);

/// Returns the command line that sends `prompt` in the model's format, or where to find the template. For models whose
/// template is not empty.
std::string chat_advice(const std::string& chat_template, const std::string& model, const std::string& prompt);

/// Builds a JSON object from assignments "NAME=JSON" of the flag --var. invalid_argument: malformed JSON.
Result<std::string> variables_json(const std::vector<std::string>& assignments);

}  // namespace redline::cli
