#include "text/tool_call_syntax.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"

namespace redline {
namespace {

using Json = nlohmann::ordered_json;
using Outcome = ToolCallSyntax::Outcome;
using Reading = ToolCallSyntax::Reading;

constexpr int kMaxNesting = 64;
constexpr std::string_view kSpaces = " \t\r\n";

const Reading kMore{Outcome::kMore}, kFailed{Outcome::kFailed};
Reading more_or_failed(bool is_all) { return is_all ? kFailed : kMore; }

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}
size_t skip_spaces(std::string_view text, size_t at) { return std::min(text.find_first_not_of(kSpaces, at), text.size()); }

std::string json_text(std::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// JSON -----------------------------------------------------------------------------------------------------------------

/// The end of the JSON value at `at`: npos while it is incomplete. Only brackets and strings are looked at.
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
      if (depth == 0 && i + 1 < text.size() && std::string_view(",}] \t\r\n").find(text[i + 1]) != std::string_view::npos)
        return i + 1;
    }
  }
  return std::string_view::npos;
}

bool is_json(std::string_view text) { return Json::accept(text.begin(), text.end()); }

/// Members of a valid JSON object, with their values as they are written.
std::vector<std::pair<std::string, std::string_view>> members_of(std::string_view object) {
  std::vector<std::pair<std::string, std::string_view>> members;
  size_t at = skip_spaces(object, 1);
  while (at < object.size() && object[at] == '"') {
    const size_t key_end = json_end(object, at);
    if (key_end == object.npos) break;
    std::string key = Json::parse(object.substr(at, key_end - at)).get<std::string>();
    const size_t value = skip_spaces(object, skip_spaces(object, key_end) + 1);
    const size_t value_end = json_end(object, value);
    if (value_end == object.npos) break;
    members.emplace_back(std::move(key), object.substr(value, value_end - value));
    at = skip_spaces(object, value_end);
    if (at < object.size() && object[at] == ',') at = skip_spaces(object, at + 1);
  }
  return members;
}

/// What a model gives as arguments: an object, an object written as a string, or nothing.
std::optional<std::string> arguments_of(std::string_view value) {
  if (value.empty() || value == "null") return "{}";
  if (value[0] == '{') return std::string(value);
  if (value[0] != '"') return std::nullopt;
  const std::string inner = Json::parse(value).get<std::string>();
  const std::string_view text = trimmed(inner);
  if (text.empty()) return "{}";
  if (text[0] != '{' || !is_json(text)) return std::nullopt;
  return std::string(text);
}

std::string text_of(std::string_view value) {
  if (value.starts_with('"')) return Json::parse(value).get<std::string>();
  return std::string(value);
}

std::optional<ChatToolCall> call_of(std::string_view object) {
  ChatToolCall call;
  std::string_view arguments;
  for (const auto& [key, value] : members_of(object)) {
    const bool is_text = value.starts_with('"');
    if ((key == "name" || key == "tool_name") && is_text) call.name = text_of(value);
    else if (key == "arguments" || key == "parameters") arguments = value;
    else if (key == "id" || key == "tool_call_id") call.id = text_of(value);
    else if (key == "function" && is_text) call.name = text_of(value);
    else if (key == "function" && value.starts_with('{')) return call_of(value);
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
    if (end == list.npos) break;
    elements.push_back(list.substr(at, end - at));
    at = skip_spaces(list, end);
    if (at < list.size() && list[at] == ',') at = skip_spaces(list, at + 1);
  }
  return elements;
}

/// What follows the last value of a block: its closing marker, or the end of the text.
Reading closed(const ToolCallSyntax& syntax, std::string_view text, size_t at, bool is_all,
               std::vector<ChatToolCall> calls) {
  const std::string_view end = syntax.end;
  if (end.empty()) return {Outcome::kDone, at, std::move(calls)};
  const size_t begin = skip_spaces(text, at);
  const std::string_view rest = text.substr(begin);
  if (rest.starts_with(end)) return {Outcome::kDone, begin + end.size(), std::move(calls)};
  if (is_all && rest.empty()) return {Outcome::kDone, text.size(), std::move(calls)};
  return end.starts_with(rest) ? more_or_failed(is_all) : kFailed;
}

}  // namespace

Reading read_json_calls(const ToolCallSyntax& syntax, std::string_view text, bool is_all, const ToolSchemas&) {
  std::vector<ChatToolCall> calls;
  size_t at = skip_spaces(text, 0);
  for (;;) {
    if (at >= text.size()) return more_or_failed(is_all);
    if (text[at] != '{' && text[at] != '[') return kFailed;
    const size_t end = json_end(text, at);
    if (end == text.npos) return more_or_failed(is_all);
    const std::string_view value = text.substr(at, end - at);
    if (!is_json(value)) return kFailed;
    std::vector<std::string_view> objects = {value};
    if (value[0] == '[') objects = elements_of(value);
    for (const std::string_view object : objects) {
      auto call = object.starts_with('{') ? call_of(object) : std::nullopt;
      if (!call) return kFailed;
      calls.push_back(std::move(*call));
    }
    if (calls.empty()) return kFailed;
    const size_t next = std::min(text.find_first_not_of(" \t\r\n,;", end), text.size());
    const bool has_another = next < text.size() && (text[next] == '{' || text[next] == '[');
    // Without a closing marker only a separator says that a call follows.
    const bool may_follow = *syntax.end || text.substr(end, next - end).find_first_of(",;") != text.npos;
    if (!has_another || !may_follow) return closed(syntax, text, end, is_all, std::move(calls));
    at = next;
  }
}

Reading read_keyed_calls(const ToolCallSyntax& syntax, std::string_view text, bool is_all, const ToolSchemas&) {
  const size_t at = skip_spaces(text, 0);
  if (at >= text.size()) return more_or_failed(is_all);
  if (text[at] != '[') return kFailed;
  const size_t end = json_end(text, at);
  if (end == text.npos) return more_or_failed(is_all);
  if (!is_json(text.substr(at, end - at))) return kFailed;
  std::vector<ChatToolCall> calls;
  for (const std::string_view object : elements_of(text.substr(at, end - at))) {
    if (!object.starts_with('{')) return kFailed;
    for (const auto& [name, value] : members_of(object)) {
      auto arguments = arguments_of(value);
      if (!arguments) return kFailed;
      calls.push_back({"", name, std::move(*arguments)});
    }
  }
  return calls.empty() ? kFailed : closed(syntax, text, end, is_all, std::move(calls));
}

Reading read_named_json(const ToolCallSyntax& syntax, std::string_view text, bool is_all, const ToolSchemas& schemas) {
  constexpr size_t kLongestHeader = 512;
  const std::string_view separator = syntax.first, second = syntax.second;
  if (const size_t at = skip_spaces(text, 0); at < text.size() && (text[at] == '[' || text[at] == '{'))
    return read_json_calls(syntax, text, is_all, schemas);  // what earlier models of the family write
  const size_t header_end = text.find(separator);
  if (header_end == text.npos) return text.size() > kLongestHeader ? kFailed : more_or_failed(is_all);
  std::string_view header = trimmed(text.substr(0, header_end));
  ChatToolCall call;
  if (const size_t cut = second.empty() ? header.npos : header.find(second); cut != header.npos) {
    const std::string_view before = trimmed(header.substr(0, cut)), behind = trimmed(header.substr(cut + second.size()));
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
    call.name = call.name.substr(10, call.name.rfind(':') == std::string::npos ? std::string::npos
                                                                               : call.name.rfind(':') - 10);
  }
  if (call.name.empty() || call.name.find_first_of(" \t\r\n{}\"<>") != std::string::npos) return kFailed;
  size_t at = skip_spaces(text, header_end + separator.size());
  if (at >= text.size()) return more_or_failed(is_all);
  if (text[at] != '{' && text[at] != '"') return kFailed;
  const size_t end = json_end(text, at);
  if (end == text.npos) return more_or_failed(is_all);
  if (!is_json(text.substr(at, end - at))) return kFailed;
  auto arguments = arguments_of(text.substr(at, end - at));
  if (!arguments) return kFailed;
  call.arguments = std::move(*arguments);
  at = end;
  if (separator.ends_with("```json\n")) {  // a fenced block
    const std::string_view rest = text.substr(skip_spaces(text, at));
    if (!rest.starts_with("```")) return std::string_view("```").starts_with(rest) ? more_or_failed(is_all) : kFailed;
    at = skip_spaces(text, at) + 3;
  }
  return closed(syntax, text, at, is_all, {std::move(call)});
}

// XML ------------------------------------------------------------------------------------------------------------------

ToolSchemas::ToolSchemas(std::string_view tools_json) {
  const Json tools = Json::parse(tools_json.begin(), tools_json.end(), nullptr, false);
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    const Json& function = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string()) continue;
    auto& types = types_[function["name"].get<std::string>()];
    if (!function.contains("parameters") || !function["parameters"].is_object()) continue;
    const Json& parameters = function["parameters"];
    if (!parameters.contains("properties") || !parameters["properties"].is_object()) continue;
    for (const auto& [name, schema] : parameters["properties"].items()) {
      Type type = Type::kUnknown;
      if (schema.is_object() && schema.contains("type")) {
        const Json& of = schema["type"];
        if (of.is_string()) type = of == "string" ? Type::kText : Type::kOther;
      }
      types[name] = type;
    }
  }
}

std::string ToolSchemas::value(std::string_view tool, std::string_view parameter, std::string_view text) const {
  Type type = Type::kUnknown;
  if (const auto found = types_.find(tool); found != types_.end())
    if (const auto of = found->second.find(parameter); of != found->second.end()) type = of->second;
  if (type == Type::kText) return json_text(text);
  const std::string_view bare = trimmed(text);
  if (bare == "True") return "true";
  if (bare == "False") return "false";
  if (bare == "None") return "null";
  if (!bare.empty() && is_json(bare) && (bare[0] != '"' || type == Type::kOther)) return std::string(bare);
  return json_text(text);
}

namespace {

/// Arguments in the order in which they come.
class ArgumentWriter {
 public:
  void add(std::string_view key, std::string_view json) {
    text_ += fmt::format("{}{}: {}", text_.empty() ? "" : ", ", json_text(key), json);
  }
  std::string finish() { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

/// Without one line break on either side.
std::string_view without_breaks(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

}  // namespace

Reading read_xml_calls(const ToolCallSyntax& syntax, std::string_view text, bool is_all, const ToolSchemas& schemas) {
  const std::string_view open = syntax.first, close = syntax.second, parameter = syntax.parameter,
                         parameter_end = syntax.parameter_end;
  std::vector<ChatToolCall> calls;
  size_t at = skip_spaces(text, 0);
  const bool starts_open = std::string_view(syntax.begin) == open;  // the marker itself is the first call's tag
  /// Whether `word` comes next; `more`: it may.
  bool more = false;
  const auto next_is = [&](std::string_view word) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with(word)) {
      at += word.size();
      return true;
    }
    more = more || word.starts_with(rest);
    return false;
  };
  /// The text up to `stop`, which is skipped.
  const auto up_to = [&](std::string_view stop) -> std::optional<std::string_view> {
    const size_t end = text.find(stop, at);
    if (end == text.npos) {
      more = true;
      return std::nullopt;
    }
    const std::string_view found = text.substr(at, end - at);
    at = end + stop.size();
    return found;
  };
  const auto stopped = [&] { return more ? more_or_failed(is_all) : kFailed; };
  bool is_open = starts_open;
  for (;;) {
    more = false;
    if (!std::exchange(is_open, false)) {
      at = skip_spaces(text, at);
      const size_t behind = at;
      if (!calls.empty()) {
        if (!starts_open && next_is(syntax.end)) return {Outcome::kDone, at, std::move(calls)};
        if (starts_open || (is_all && at == text.size())) return {Outcome::kDone, behind, std::move(calls)};
      }
      if (!next_is(open)) return stopped();
    }
    const auto name = up_to(">");
    if (!name) return stopped();
    ChatToolCall call;
    call.name = trimmed(name->substr(0, name->find('"')));
    if (call.name.empty() || call.name.find_first_of(" \n<") != std::string::npos) return kFailed;
    ArgumentWriter arguments;
    for (;;) {
      at = skip_spaces(text, at);
      more = false;
      if (next_is(close)) break;
      if (!next_is(parameter)) return stopped();
      const auto head = up_to(">");
      if (!head) return stopped();
      const size_t quote = head->find('"');
      const std::string_view key = trimmed(head->substr(0, quote));
      const auto raw = up_to(parameter_end);
      if (!raw) return stopped();
      std::string_view value = without_breaks(*raw);
      const std::string_view attributes = quote == head->npos ? std::string_view() : head->substr(quote);
      if (value.starts_with("<![CDATA[") && value.ends_with("]]>")) {
        arguments.add(key, json_text(value.substr(9, value.size() - 12)));
      } else if (attributes.find("string=\"true\"") != attributes.npos) {
        arguments.add(key, json_text(*raw));
      } else if (attributes.find("string=\"false\"") != attributes.npos && is_json(trimmed(value))) {
        arguments.add(key, trimmed(value));
      } else {
        arguments.add(key, schemas.value(call.name, key, value));
      }
    }
    call.arguments = arguments.finish();
    calls.push_back(std::move(call));
  }
}

Reading read_key_value_call(const ToolCallSyntax& syntax, std::string_view text, bool is_all, const ToolSchemas& schemas) {
  const std::string suffix = std::string(syntax.first) + ">";
  const std::string key_open = "<arg_key" + suffix, key_close = "</arg_key" + suffix, value_open = "<arg_value" + suffix,
                    value_close = "</arg_value" + suffix;
  const size_t end = text.find(syntax.end);
  if (end == text.npos) return more_or_failed(is_all);
  std::string_view body = text.substr(0, end);
  ChatToolCall call;
  const size_t name_end = std::min(body.find('<'), body.size());
  call.name = trimmed(body.substr(0, name_end));
  if (call.name.empty() || call.name.find_first_of(" \n{\"") != std::string::npos) return kFailed;
  ArgumentWriter arguments;
  for (size_t at = name_end; (at = body.find(key_open, at)) != body.npos;) {
    const size_t key = at + key_open.size(), key_end = body.find(key_close, key);
    const size_t value_tag = body.find(value_open, key);
    const size_t value = value_tag + value_open.size(), value_end = body.find(value_close, value);
    if (key_end == body.npos || value_tag == body.npos || value_end == body.npos) return kFailed;
    const std::string_view name = trimmed(body.substr(key, key_end - key));
    arguments.add(name, schemas.value(call.name, name, body.substr(value, value_end - value)));
    at = value_end;
  }
  call.arguments = arguments.finish();
  return {Outcome::kDone, end + std::string_view(syntax.end).size(), {std::move(call)}};
}

namespace {

/// Elements of <key>value</key> as JSON.
class NestedXml {
 public:
  NestedXml(std::string_view text, const ToolSchemas& schemas, std::string_view tool)
      : text_(text), schemas_(schemas), tool_(tool) {}

  /// The elements up to </`closing`> as an object, or as a list if all are <item>.
  std::optional<std::string> content(std::string_view closing, std::string_view parameter, int depth) {
    if (depth > kMaxNesting) return std::nullopt;
    const std::string end = fmt::format("</{}>", closing);
    const size_t begin = at_;
    const size_t first = skip_spaces(text_, at_);
    if (first < text_.size() && text_[first] == '<' && text_.substr(first).substr(0, 2) != "</") {
      std::vector<std::pair<std::string, std::string>> members;
      at_ = first;
      while (at_ < text_.size() && text_[at_] == '<' && !text_.substr(at_).starts_with(end)) {
        const size_t name_end = text_.find('>', at_);
        if (name_end == text_.npos) return std::nullopt;
        const std::string name(text_.substr(at_ + 1, name_end - at_ - 1));
        at_ = name_end + 1;
        auto value = content(name, depth == 0 ? std::string_view(name) : parameter, depth + 1);
        if (!value) return std::nullopt;
        members.emplace_back(name, std::move(*value));
        at_ = skip_spaces(text_, at_);
      }
      if (!text_.substr(at_).starts_with(end)) return std::nullopt;
      at_ += end.size();
      const bool is_list =
          depth > 0 && std::all_of(members.begin(), members.end(), [](const auto& m) { return m.first == "item"; });
      std::string out;
      for (const auto& [name, value] : members)
        out += fmt::format("{}{}{}", out.empty() ? "" : ", ", is_list ? "" : json_text(name) + ": ", value);
      return is_list ? "[" + out + "]" : "{" + out + "}";
    }
    const size_t stop = text_.find(end, begin);
    if (stop == text_.npos) return std::nullopt;
    at_ = stop + end.size();
    if (depth == 0) return "{}";
    const std::string_view value = text_.substr(begin, stop - begin);
    return schemas_.value(tool_, depth == 1 ? parameter : std::string_view(), value);
  }
  size_t at() const { return at_; }

 private:
  std::string_view text_;
  const ToolSchemas& schemas_;
  std::string_view tool_;
  size_t at_ = 0;
};

}  // namespace

Reading read_nested_xml(const ToolCallSyntax& syntax, std::string_view text, bool is_all, const ToolSchemas& schemas) {
  const size_t end = text.find(syntax.end);
  if (end == text.npos) return more_or_failed(is_all);
  std::string body;
  const std::string_view prefix = syntax.first;
  for (std::string_view rest = text.substr(0, end); !rest.empty();) {
    const size_t at = rest.find(prefix);
    body += rest.substr(0, at);
    rest.remove_prefix(at == rest.npos ? rest.size() : at + prefix.size());
  }
  constexpr std::string_view kOpen = "<invoke name=\"";
  std::vector<ChatToolCall> calls;
  for (size_t at = skip_spaces(body, 0); at < body.size(); at = skip_spaces(body, at)) {
    const std::string_view rest = std::string_view(body).substr(at);
    const size_t name_end = rest.starts_with(kOpen) ? rest.find("\">") : rest.npos;
    if (name_end == rest.npos) return kFailed;
    ChatToolCall call;
    call.name = rest.substr(kOpen.size(), name_end - kOpen.size());
    NestedXml elements(rest.substr(name_end + 2), schemas, call.name);
    auto arguments = elements.content("invoke", "", 0);
    if (!arguments || call.name.empty()) return kFailed;
    call.arguments = std::move(*arguments);
    calls.push_back(std::move(call));
    at += name_end + 2 + elements.at();
  }
  return calls.empty() ? kFailed : Reading{Outcome::kDone, end + std::string_view(syntax.end).size(), std::move(calls)};
}

// Literals -------------------------------------------------------------------------------------------------------------

namespace {

/// Literals of Python, JSON and Gemma as JSON. Errors and ends of the text are sticky.
class LiteralReader {
 public:
  LiteralReader(std::string_view text, std::string_view quote) : text_(text), quote_(quote) {}

  bool failed() const { return failed_; }
  bool ended() const { return ended_; }
  size_t at() const { return at_; }
  bool ok() const { return !failed_ && !ended_; }
  void spaces() { at_ = skip_spaces(text_, at_); }

  bool skip(std::string_view word) {
    spaces();
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with(word)) {
      at_ += word.size();
      return true;
    }
    if (word.starts_with(rest)) ended_ = true;
    return false;
  }
  void expect(std::string_view word) {
    if (!skip(word) && !ended_) failed_ = true;
  }

  std::string name() {
    spaces();
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' ||
                                  text_[at_] == '.' || text_[at_] == '-'))
      ++at_;
    if (at_ == text_.size()) ended_ = true;
    else if (at_ == begin) failed_ = true;
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string value(int depth = 0) {
    spaces();
    if (depth > kMaxNesting) failed_ = true;
    if (at_ >= text_.size()) ended_ = true;
    if (!ok()) return "";
    if (!quote_.empty()) {
      if (skip(quote_)) return json_text(until(quote_));
      if (!ok()) return "";
    }
    const char c = text_[at_];
    if (c == '\'' || c == '"') return json_text(string(c));
    if (c == '[' || c == '(') return list(c == '[' ? "]" : ")", depth);
    if (c == '{') return dict(depth);
    const size_t begin = at_;
    while (at_ < text_.size() && std::string_view(",:()[]{}= \t\r\n<").find(text_[at_]) == std::string_view::npos) ++at_;
    if (at_ == text_.size()) ended_ = true;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word == "True" || word == "true") return "true";
    if (word == "False" || word == "false") return "false";
    if (word == "None" || word == "null") return "null";
    if (ok() && (word.empty() || !is_json(word))) failed_ = true;
    return std::string(word);
  }

  /// Members up to '}', which is read; keys may be without quotes.
  std::string dict(int depth) {
    expect("{");
    ArgumentWriter members;
    while (ok() && !skip("}")) {
      if (!ok()) break;
      const std::string key = key_text(depth);
      expect(":");
      const std::string member = value(depth + 1);
      if (!ok()) break;
      members.add(key, member);
      if (!skip(",") && ok()) {
        expect("}");
        break;
      }
    }
    return members.finish();
  }

 private:
  std::string key_text(int depth) {
    spaces();
    if (at_ >= text_.size()) {
      ended_ = true;
      return "";
    }
    const char c = text_[at_];
    const bool is_quoted = c == '\'' || c == '"' || (!quote_.empty() && text_.substr(at_).starts_with(quote_));
    if (is_quoted) {
      const std::string json = value(depth + 1);
      return ok() ? Json::parse(json).get<std::string>() : "";
    }
    if (!quote_.empty() && quote_.starts_with(text_.substr(at_))) {
      ended_ = true;
      return "";
    }
    return name();
  }

  std::string list(std::string_view close, int depth) {
    ++at_;
    std::string out;
    while (ok() && !skip(close)) {
      if (!ok()) break;
      const std::string item = value(depth + 1);
      if (!ok()) break;
      out += (out.empty() ? "" : ", ") + item;
      if (!skip(",") && ok()) {
        expect(close);
        break;
      }
    }
    return "[" + out + "]";
  }

  std::string_view until(std::string_view stop) {
    const size_t end = text_.find(stop, at_);
    if (end == text_.npos) {
      ended_ = true;
      return {};
    }
    const std::string_view found = text_.substr(at_, end - at_);
    at_ = end + stop.size();
    return found;
  }

  std::string string(char quote) {
    std::string out;
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == quote) {
        ++at_;
        return out;
      }
      if (c != '\\' || at_ + 1 >= text_.size()) {
        out += c;
        continue;
      }
      const char escaped = text_[++at_];
      if (escaped == 'n') out += '\n';
      else if (escaped == 't') out += '\t';
      else if (escaped == 'r') out += '\r';
      else if (escaped == 'u' && at_ + 4 < text_.size()) {
        const Json c16 = Json::parse(fmt::format("\"\\u{}\"", text_.substr(at_ + 1, 4)), nullptr, false);
        if (c16.is_string()) out += c16.get<std::string>();
        at_ += 4;
      } else {
        if (escaped != '\\' && escaped != '\'' && escaped != '"' && escaped != '/') out += '\\';
        out += escaped;
      }
    }
    ended_ = true;
    return out;
  }

  std::string_view text_, quote_;
  size_t at_ = 0;
  bool failed_ = false, ended_ = false;
};

}  // namespace

Reading read_python_calls(const ToolCallSyntax& syntax, std::string_view text, bool is_all, const ToolSchemas& schemas) {
  const size_t begin = skip_spaces(text, 0);
  if (begin >= text.size()) return more_or_failed(is_all);
  if (text[begin] == '{') return read_json_calls(syntax, text, is_all, schemas);
  LiteralReader reader(text, "");
  const auto stopped = [&] { return reader.failed() ? kFailed : more_or_failed(is_all); };
  const bool is_list = reader.skip("[");
  if (is_list && skip_spaces(text, reader.at()) < text.size() && text[skip_spaces(text, reader.at())] == '{')
    return read_json_calls(syntax, text, is_all, schemas);
  std::vector<ChatToolCall> calls;
  do {
    ChatToolCall call;
    call.name = reader.name();
    if (!reader.ok()) return stopped();
    if (call.name.ends_with(".call")) call.name.resize(call.name.size() - 5);
    reader.expect("(");
    ArgumentWriter arguments;
    while (reader.ok() && !reader.skip(")")) {
      if (!reader.ok()) break;
      const std::string key = reader.name();
      reader.expect("=");
      const std::string value = reader.value();
      if (!reader.ok()) break;
      arguments.add(key, value);
      if (!reader.skip(",") && reader.ok()) {
        reader.expect(")");
        break;
      }
    }
    if (!reader.ok()) return stopped();
    call.arguments = arguments.finish();
    calls.push_back(std::move(call));
  } while (is_list && reader.skip(","));
  if (is_list) {
    if (!reader.ok() && !is_all) return stopped();
    reader.expect("]");
    if (!reader.ok()) return stopped();
  }
  return closed(syntax, text, reader.at(), is_all, std::move(calls));
}

Reading read_gemma_call(const ToolCallSyntax& syntax, std::string_view text, bool is_all, const ToolSchemas&) {
  LiteralReader reader(text, syntax.first);
  ChatToolCall call;
  call.name = reader.name();
  if (!reader.ok()) return reader.failed() ? kFailed : more_or_failed(is_all);
  call.arguments = reader.dict(0);
  if (!reader.ok()) return reader.failed() ? kFailed : more_or_failed(is_all);
  return closed(syntax, text, reader.at(), is_all, {std::move(call)});
}

}  // namespace redline
