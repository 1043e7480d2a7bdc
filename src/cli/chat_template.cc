#include "cli/chat_template.h"

#include <fmt/format.h>

#include <string_view>

#include "base/json_text.h"
#include "cli/json.h"

namespace redline::cli {
namespace {

/// A chat format. A template has the first of these formats whose words it contains.
struct ChatFormat {
  std::string_view first_word, second_word;
  std::string_view before, after;  ///< text before and after the prompt
};
constexpr ChatFormat kFormats[] = {
    {"<|im_start|>", "<|im_end|>", "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"},
    {"<|start_header_id|>", "<|eot_id|>", "<|start_header_id|>user<|end_header_id|>\n\n",
     "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"<|start_of_role|>", "<|end_of_text|>", "<|start_of_role|>user<|end_of_role|>",
     "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"},
    {"<start_of_turn>", "<end_of_turn>", "<start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>model\n"},
    {"<｜User｜>", "<｜Assistant｜>", "<｜User｜>", "<｜Assistant｜>"},
    {"[INST]", "[/INST]", "[INST] ", " [/INST]"},
    {"<|user|>", "<|end|>", "<|user|>\n", "<|end|>\n<|assistant|>\n"},
    {"<|user|>", "<|assistant|>", "<|user|>\n", "</s>\n<|assistant|>\n"},
};

/// Quotes a text for bash, zsh and ksh as $'...', in which line breaks are visible.
std::string shell_quoted(std::string_view text) {
  std::string quoted = "$'";
  for (const char c : text) {
    if (c == '\n') quoted += "\\n";
    else if (c == '\'' || c == '\\') quoted += fmt::format("\\{}", c);
    else quoted += c;
  }
  return quoted + "'";
}

}  // namespace

std::string in_chat_format(const std::string& chat_template, const std::string& prompt) {
  for (const ChatFormat& format : kFormats)
    if (chat_template.find(format.first_word) != std::string::npos &&
        chat_template.find(format.second_word) != std::string::npos)
      return fmt::format("{}{}{}", format.before, prompt, format.after);
  return "";
}

std::string chat_advice(const std::string& chat_template, const std::string& model, const std::string& prompt) {
  constexpr size_t kMaxShown = 120;
  const std::string text = in_chat_format(chat_template, prompt.size() <= kMaxShown ? prompt : "PROMPT");
  if (text.empty())
    return fmt::format("write its template into PROMPT, with --special; redline inspect {} --chat-template prints it",
                       model);
  return fmt::format("use its chat format:\n  redline run {} --special {}", model, shell_quoted(text));
}

Result<std::string> variables_json(const std::vector<std::string>& assignments) {
  Json variables = Json::object();
  for (const std::string& assignment : assignments) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0)
      return invalid_argument("flag --var: \"{}\" is not of the form NAME=JSON", assignment);
    const Json value = parse_json_or_discard<Json>(std::string_view(assignment).substr(equals + 1));
    if (value.is_discarded())
      return invalid_argument("flag --var {}: \"{}\" is not JSON; a text needs quotes: {}='\"...\"'",
                              assignment.substr(0, equals), assignment.substr(equals + 1),
                              assignment.substr(0, equals));
    variables[assignment.substr(0, equals)] = value;
  }
  return to_text(variables, -1);
}

}  // namespace redline::cli
