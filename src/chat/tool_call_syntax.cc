#include "chat/tool_call_syntax.h"

#include <optional>

#include "chat/tool_call_parts.h"

namespace redline {

using namespace tool_calls;

namespace {

// JSON
// -----------------------------------------------------------------------------------------------------------------

/// Returns the end of the JSON value at `at`, or npos while it is incomplete. Looks only at brackets and strings.
size_t json_end(std::string_view text, size_t at) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    }
    if (!in_string && depth <= 0) {
      if (c == '"' || c == '}' || c == ']') return i + 1;
      if (depth == 0 && i + 1 < text.size() &&
          std::string_view(",}] \t\r\n").find(text[i + 1]) != std::string_view::npos)
        return i + 1;
    }
  }
  return std::string_view::npos;
}

/// Returns the members of a valid JSON object, with their values as they are written.
std::vector<std::pair<std::string, std::string_view>> members_of(std::string_view object) {
  std::vector<std::pair<std::string, std::string_view>> members;
  size_t at = skip_spaces(object, 1);
  while (at < object.size() && object[at] == '"') {
    const size_t key_end = json_end(object, at);
    if (key_end == std::string::npos) break;
    std::string key = OrderedJson::parse(object.substr(at, key_end - at)).get<std::string>();
    const size_t value = skip_spaces(object, skip_spaces(object, key_end) + 1);
    const size_t value_end = json_end(object, value);
    if (value_end == std::string::npos) break;
    members.emplace_back(std::move(key), object.substr(value, value_end - value));
    at = skip_spaces(object, value_end);
    if (at < object.size() && object[at] == ',') at = skip_spaces(object, at + 1);
  }
  return members;
}

/// Returns the arguments that a model wrote: an object, an object written as a string, or nothing.
std::optional<std::string> arguments_of(std::string_view value) {
  if (value.empty() || value == "null") return "{}";
  if (value[0] == '{') return std::string(value);
  if (value[0] != '"') return std::nullopt;
  const std::string inner = OrderedJson::parse(value).get<std::string>();
  const std::string_view text = trimmed(inner);
  if (text.empty()) return "{}";
  if (text[0] != '{' || !is_json(text)) return std::nullopt;
  return std::string(text);
}

std::string text_of(std::string_view value) {
  if (value.starts_with('"')) return OrderedJson::parse(value).get<std::string>();
  return std::string(value);
}

/// Returns the call that a JSON object describes. `may_wrap`: {"function": {the call}} is a call too.
std::optional<ChatToolCall> call_of(std::string_view object, bool may_wrap = true) {
  ChatToolCall call;
  std::string_view arguments;
  for (const auto& [key, value] : members_of(object)) {
    const bool is_text = value.starts_with('"');
    if ((key == "name" || key == "tool_name" || key == "function") && is_text) call.name = text_of(value);
    else if (key == "arguments" || key == "parameters") arguments = value;
    else if (key == "id" || key == "tool_call_id") call.id = text_of(value);
    else if (key == "function" && value.starts_with('{') && may_wrap) return call_of(value, false);
  }
  auto object_text = arguments_of(arguments);
  if (call.name.empty() || !object_text) return std::nullopt;
  call.arguments = std::move(*object_text);
  return call;
}

std::vector<std::string_view> elements_of(std::string_view list) {
  std::vector<std::string_view> elements;
  for (size_t at = skip_spaces(list, 1); at < list.size() && list[at] != ']';) {
    const size_t end = json_end(list, at);
    if (end == std::string::npos) break;
    elements.push_back(list.substr(at, end - at));
    at = skip_spaces(list, end);
    if (at < list.size() && list[at] == ',') at = skip_spaces(list, at + 1);
  }
  return elements;
}

}  // namespace

Reading tool_calls::closed(const ToolCallSyntax& syntax, std::string_view text, size_t at, bool is_all,
                           std::vector<ChatToolCall> calls) {
  const std::string_view end = syntax.end;
  if (end.empty()) return {Outcome::kDone, at, std::move(calls)};
  const size_t begin = skip_spaces(text, at);
  const std::string_view rest = text.substr(begin);
  if (rest.starts_with(end)) return {Outcome::kDone, begin + end.size(), std::move(calls)};
  // The token limit has cut the closing marker, but the calls are whole.
  if (is_all && end.starts_with(rest)) return {Outcome::kDone, text.size(), std::move(calls)};
  return end.starts_with(rest) ? more_or_failed(is_all) : failed();
}

Reading read_json_calls(const ToolCallSyntax& syntax, std::string_view text, bool is_all, const ToolSchemas&) {
  std::vector<ChatToolCall> calls;
  size_t at = skip_spaces(text, 0);
  for (;;) {
    if (at >= text.size()) return more_or_failed(is_all);
    if (text[at] != '{' && text[at] != '[') return failed();
    const size_t end = json_end(text, at);
    // Only the whole calls of a cut list are kept.
    if (end == std::string::npos && is_all && (text[at] == '[' || !calls.empty())) {
      if (text[at] == '[')
        for (const std::string_view object : elements_of(text.substr(at)))
          if (auto call = object.starts_with('{') && is_json(object) ? call_of(object) : std::nullopt)
            calls.push_back(std::move(*call));
      if (!calls.empty()) return {Outcome::kDone, text.size(), std::move(calls)};
    }
    if (end == std::string::npos) return more_or_failed(is_all);
    const std::string_view value = text.substr(at, end - at);
    if (!is_json(value)) return failed();
    std::vector<std::string_view> objects = {value};
    if (value[0] == '[') objects = elements_of(value);
    for (const std::string_view object : objects) {
      auto call = object.starts_with('{') ? call_of(object) : std::nullopt;
      if (!call) return failed();
      calls.push_back(std::move(*call));
    }
    if (calls.empty()) return failed();
    const size_t next = std::min(text.find_first_not_of(" \t\r\n,;", end), text.size());
    const bool has_separator = text.substr(end, next - end).find_first_of(",;") != std::string::npos;
    // Without a closing marker, only a separator announces another call, and it may come with the next text.
    if (!*syntax.end && next == text.size() && !is_all) return more();
    const bool has_another = next < text.size() && (text[next] == '{' || text[next] == '[');
    if (!has_another || !(*syntax.end || has_separator)) return closed(syntax, text, end, is_all, std::move(calls));
    at = next;
  }
}

Reading read_keyed_calls(const ToolCallSyntax& syntax, std::string_view text, bool is_all, const ToolSchemas&) {
  const size_t at = skip_spaces(text, 0);
  if (at >= text.size()) return more_or_failed(is_all);
  if (text[at] != '[') return failed();
  const size_t end = json_end(text, at);
  if (end == std::string::npos) return more_or_failed(is_all);
  if (!is_json(text.substr(at, end - at))) return failed();
  std::vector<ChatToolCall> calls;
  for (const std::string_view object : elements_of(text.substr(at, end - at))) {
    if (!object.starts_with('{')) return failed();
    for (const auto& [name, value] : members_of(object)) {
      auto arguments = arguments_of(value);
      if (!arguments) return failed();
      calls.push_back({"", name, std::move(*arguments)});
    }
  }
  return calls.empty() ? failed() : closed(syntax, text, end, is_all, std::move(calls));
}

Reading read_named_json(const ToolCallSyntax& syntax, std::string_view text, bool is_all, const ToolSchemas& schemas) {
  constexpr size_t kLongestHeader = 512;
  const std::string_view separator = syntax.first, second = syntax.second;
  if (const size_t at = skip_spaces(text, 0); at < text.size() && (text[at] == '[' || text[at] == '{'))
    return read_json_calls(syntax, text, is_all, schemas);  // earlier models of the family write this form
  const size_t header_end = text.substr(0, kLongestHeader).find(separator);
  if (header_end == std::string::npos) return text.size() >= kLongestHeader ? failed() : more_or_failed(is_all);
  std::string_view header = trimmed(text.substr(0, header_end));
  ChatToolCall call;
  if (const size_t cut = second.empty() ? std::string::npos : header.find(second); cut != std::string::npos) {
    const std::string_view before = trimmed(header.substr(0, cut)),
                           behind = trimmed(header.substr(cut + second.size()));
    if (second == "[CALL_ID]") {
      call.name = before;
      call.id = behind;
    } else if (second == "<｜tool▁sep｜>") {  // the kind of the tool, which is always "function"
      call.name = behind;
    } else {
      call.id = before;
      call.name = behind;
    }
  } else {
    call.name = header;
  }
  if (call.name.starts_with("functions.")) {  // functions.name:0
    call.id = call.name;
    call.name =
        call.name.substr(10, call.name.rfind(':') == std::string::npos ? std::string::npos : call.name.rfind(':') - 10);
  }
  if (call.name.empty() || call.name.find_first_of(" \t\r\n{}\"<>") != std::string::npos) return failed();
  size_t at = skip_spaces(text, header_end + separator.size());
  if (at >= text.size()) return more_or_failed(is_all);
  if (text[at] != '{' && text[at] != '"') return failed();
  const size_t end = json_end(text, at);
  if (end == std::string::npos) return more_or_failed(is_all);
  if (!is_json(text.substr(at, end - at))) return failed();
  auto arguments = arguments_of(text.substr(at, end - at));
  if (!arguments) return failed();
  call.arguments = std::move(*arguments);
  at = end;
  if (separator.ends_with("```json\n")) {  // a fenced block
    const std::string_view rest = text.substr(skip_spaces(text, at));
    if (!rest.starts_with("```")) return std::string_view("```").starts_with(rest) ? more_or_failed(is_all) : failed();
    at = skip_spaces(text, at) + 3;
  }
  return closed(syntax, text, at, is_all, {std::move(call)});
}

}  // namespace redline
