#include "server/prompt_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_text.h"

namespace redline::server {
namespace {

constexpr std::string_view kBetween = "\n\n";

std::string content_of(const Json& message) {
  const auto content = message.find("content");
  return content != message.end() && content->is_string() ? content->get<std::string>() : "";
}

std::string joined_texts(const std::string& first, const std::string& second) {
  if (first.empty() || second.empty()) return first + second;
  return first + std::string(kBetween) + second;
}

/// Removes white space around a text, as templates do.
std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

}  // namespace

Json merged_system_messages(Json messages, SystemMessages which) {
  Json others = Json::array();
  std::string text;
  bool has_system = false, is_leading = true;
  for (Json& message : messages) {
    const bool is_system = message["role"] == "system";
    is_leading = is_leading && is_system;
    if (is_system && (is_leading || which == SystemMessages::kAll)) {
      text = joined_texts(text, content_of(message));
      has_system = true;
    } else {
      others.push_back(std::move(message));
    }
  }
  if (has_system) others.insert(others.begin(), Json{{"role", "system"}, {"content", std::move(text)}});
  return others;
}

bool has_later_system_message(const Json& messages) {
  bool has_other = false;
  for (const Json& message : messages) {
    if (message["role"] == "system" && has_other) return true;
    has_other = has_other || message["role"] != "system";
  }
  return false;
}

bool writes_system_messages(const std::string& prompt, const Json& messages) {
  return std::all_of(messages.begin(), messages.end(), [&](const Json& message) {
    return message["role"] != "system" || prompt.find(trimmed(content_of(message))) != std::string::npos;
  });
}

bool has_tool_messages(const Json& messages) {
  return std::any_of(messages.begin(), messages.end(), [](const Json& message) {
    return message["role"] == "tool" || (message.contains("tool_calls") && !message["tool_calls"].empty());
  });
}

Json tool_messages_as_text(const Json& messages) {
  Json plain = Json::array();
  bool after_result = false;
  for (Json message : messages) {
    if (message["role"] == "tool") {
      std::string text = "<tool_response>\n" + content_of(message) + "\n</tool_response>";
      if (after_result) plain.back()["content"] = content_of(plain.back()) + "\n" + text;
      else plain.push_back({{"role", "user"}, {"content", std::move(text)}});
      after_result = true;
      continue;
    }
    if (after_result && message["role"] == "user") {  // templates expect that user and assistant alternate
      plain.back()["content"] = content_of(plain.back()) + "\n" + content_of(message);
      after_result = false;
      continue;
    }
    after_result = false;
    std::string text = content_of(message);
    if (message.contains("tool_calls")) {
      for (const Json& call : message["tool_calls"]) {
        const Json& function = call["function"];
        const Json& given = function["arguments"];
        Json arguments = given.is_string() ? parse_json_or_discard<Json>(given.get_ref<const std::string&>()) : given;
        if (arguments.is_discarded()) arguments = given;
        text += (text.empty() ? "" : "\n") +
                fmt::format("<tool_call>\n{}\n</tool_call>",
                            to_text(Json{{"name", function["name"]}, {"arguments", std::move(arguments)}}));
      }
      message.erase("tool_calls");
      message["content"] = std::move(text);
    }
    plain.push_back(std::move(message));
  }
  return plain;
}

std::string tools_as_text(const Json& tools) {
  std::string text = "You can call functions. These are there, one JSON object a line:\n<tools>\n";
  for (const Json& tool : tools) text += to_text(tool.contains("function") ? tool["function"] : tool) + "\n";
  return text +
         "</tools>\nTo call one, write its name and its arguments as a JSON object between these tags:\n"
         "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {\"ARGUMENT\": VALUE}}\n</tool_call>";
}

Json with_instructions(Json messages, const std::string& text, bool in_user) {
  if (in_user) {
    const std::string system =
        !messages.empty() && messages[0]["role"] == "system" ? joined_texts(content_of(messages[0]), text) : text;
    Json others = Json::array();
    for (Json& message : messages)
      if (&message != &messages[0] || message["role"] != "system") others.push_back(std::move(message));
    for (Json& message : others) {
      if (message["role"] != "user") continue;
      message["content"] = joined_texts(system, content_of(message));
      return others;
    }
    others.insert(others.begin(), Json{{"role", "user"}, {"content", system}});
    return others;
  }
  if (!messages.empty() && messages[0]["role"] == "system")
    messages[0]["content"] = joined_texts(content_of(messages[0]), text);
  else messages.insert(messages.begin(), Json{{"role", "system"}, {"content", text}});
  return messages;
}

}  // namespace redline::server
