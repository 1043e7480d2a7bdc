// The reader of calls that are written like XML, and the types of their values.
#include <algorithm>
#include <optional>

#include "base/json_text.h"
#include "chat/tool_call_parts.h"

namespace redline {

using namespace tool_calls;

ToolSchemas::ToolSchemas(std::string_view tools_json) {
  const OrderedJson tools = parse_json_or_discard<OrderedJson>(tools_json);
  if (!tools.is_array()) return;
  for (const OrderedJson& tool : tools) {
    const OrderedJson& function = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string()) continue;
    auto& rules = rules_[function["name"].get<std::string>()];
    if (!function.contains("parameters") || !function["parameters"].is_object()) continue;
    const OrderedJson& parameters = function["parameters"];
    if (!parameters.contains("properties") || !parameters["properties"].is_object()) continue;
    for (const auto& [name, schema] : parameters["properties"].items())
      rules[name] = plain_value_rule(parameters, schema);
  }
}

std::string ToolSchemas::value(std::string_view tool, std::string_view parameter, std::string_view text) const {
  static const PlainValueRule kUnknown;
  const PlainValueRule* rule = &kUnknown;
  if (const auto found = rules_.find(tool); found != rules_.end())
    if (const auto of = found->second.find(parameter); of != found->second.end()) rule = &of->second;
  return plain_value_as_json(*rule, text);
}

bool ToolSchemas::begins_json_call(std::string_view text) const {
  constexpr size_t kLongestHead = 512;
  const std::string_view head = text.substr(0, kLongestHead);
  for (const char* key : {"\"name\"", "\"tool_name\""}) {
    const size_t at = head.find(key);
    if (at == std::string_view::npos) continue;
    const size_t begin = head.find('"', at + std::string_view(key).size());
    if (begin == std::string_view::npos) return !rules_.empty();
    const std::string_view rest = head.substr(begin + 1);
    const std::string_view name = rest.substr(0, rest.find('"'));
    const bool is_whole = name.size() < rest.size();
    return std::any_of(rules_.begin(), rules_.end(),
                       [&](const auto& tool) { return is_whole ? tool.first == name : tool.first.starts_with(name); });
  }
  return false;
}

namespace {

/// Returns the offset at which the text ends with the beginning of `marker`, at least two characters of it; npos: it
/// does not.
size_t cut_marker(std::string_view text, std::string_view marker) {
  for (size_t size = std::min(text.size(), marker.size() - 1); size > 1; --size)
    if (text.ends_with(marker.substr(0, size))) return text.size() - size;
  return std::string_view::npos;
}

/// Returns the text without one line break at either end.
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
  /// Skips `word` and returns true if it comes next. Sets `may_come` if more text may still complete it.
  bool may_come = false;
  const auto next_is = [&](std::string_view word) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with(word)) {
      at += word.size();
      return true;
    }
    may_come = may_come || word.starts_with(rest);
    return false;
  };
  /// Returns the text up to `stop`, and moves past `stop`.
  const auto up_to = [&](std::string_view stop) -> std::optional<std::string_view> {
    const size_t end = text.find(stop, at);
    if (end == std::string::npos) {
      may_come = true;
      return std::nullopt;
    }
    const std::string_view found = text.substr(at, end - at);
    at = end + stop.size();
    return found;
  };
  // Ends the reading. If a call is cut at the end of the text, the calls before it are whole and count.
  const auto stopped = [&]() -> Reading {
    if (may_come && is_all && !calls.empty()) return {Outcome::kDone, text.size(), std::move(calls)};
    return may_come ? more_or_failed(is_all) : failed();
  };
  /// Returns true if the text ends here with a part of `word`.
  const auto is_cut_within = [&](std::string_view word) {
    const std::string_view rest = text.substr(at);
    return is_all && !rest.empty() && word.starts_with(rest);
  };
  bool is_open = starts_open;
  for (;;) {
    may_come = false;
    if (!std::exchange(is_open, false)) {
      at = skip_spaces(text, at);
      const size_t behind = at;
      if (!calls.empty()) {
        if (*syntax.end && next_is(syntax.end)) return {Outcome::kDone, at, std::move(calls)};
        if (is_all && at == text.size()) return {Outcome::kDone, behind, std::move(calls)};
        if (*syntax.end && is_cut_within(syntax.end)) return {Outcome::kDone, text.size(), std::move(calls)};
        if (starts_open && may_come && !is_all) return more();
        if (starts_open) return {Outcome::kDone, behind, std::move(calls)};
      }
      if (!next_is(open)) return stopped();
    }
    const auto name = up_to(">");
    if (!name) return stopped();
    ChatToolCall call;
    call.name = trimmed(name->substr(0, name->find('"')));
    if (call.name.empty() || call.name.find_first_of(" \n<") != std::string::npos) return failed();
    if (syntax.only_tools && !schemas.has(call.name)) return failed();
    ArgumentWriter arguments;
    for (;;) {
      at = skip_spaces(text, at);
      may_come = false;
      if (next_is(close)) break;
      if (is_cut_within(close) && !parameter.starts_with(text.substr(at))) {
        at = text.size();
        break;
      }
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
      } else if (attributes.find("string=\"true\"") != std::string::npos) {
        arguments.add(key, json_text(*raw));
      } else if (attributes.find("string=\"false\"") != std::string::npos && is_json(trimmed(value))) {
        arguments.add(key, trimmed(value));
      } else {
        arguments.add(key, schemas.value(call.name, key, value));
      }
    }
    call.arguments = arguments.finish();
    calls.push_back(std::move(call));
  }
}

Reading read_key_value_call(const ToolCallSyntax& syntax, std::string_view text, bool is_all,
                            const ToolSchemas& schemas) {
  const std::string suffix = std::string(syntax.first) + ">";
  const std::string key_open = "<arg_key" + suffix, key_close = "</arg_key" + suffix,
                    value_open = "<arg_value" + suffix, value_close = "</arg_value" + suffix;
  const size_t whole = text.find(syntax.end);
  const size_t end = whole == std::string::npos && is_all ? cut_marker(text, syntax.end) : whole;
  if (end == std::string::npos) return more_or_failed(is_all);
  const size_t used = std::min(text.size(), end + std::string_view(syntax.end).size());
  std::string_view body = text.substr(0, end);
  ChatToolCall call;
  const size_t name_end = std::min(body.find('<'), body.size());
  call.name = trimmed(body.substr(0, name_end));
  if (call.name.empty() || call.name.find_first_of(" \n{\"") != std::string::npos) return failed();
  ArgumentWriter arguments;
  for (size_t at = name_end; (at = body.find(key_open, at)) != std::string::npos;) {
    const size_t key = at + key_open.size(), key_end = body.find(key_close, key);
    const size_t value_tag = body.find(value_open, key);
    const size_t value = value_tag + value_open.size(), value_end = body.find(value_close, value);
    if (key_end == std::string::npos || value_tag == std::string::npos || value_end == std::string::npos)
      return failed();
    const std::string_view name = trimmed(body.substr(key, key_end - key));
    arguments.add(name, schemas.value(call.name, name, body.substr(value, value_end - value)));
    at = value_end;
  }
  call.arguments = arguments.finish();
  return {Outcome::kDone, used, {std::move(call)}};
}

namespace {

/// Reads elements <key>value</key>, and writes them as JSON.
class NestedXml {
 public:
  NestedXml(std::string_view text, const ToolSchemas& schemas, std::string_view tool)
      : text_(text), schemas_(schemas), tool_(tool) {}

  /// Returns the elements up to </`closing`> as an object, or as a list if all of them are <item>.
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
        if (name_end == std::string::npos) return std::nullopt;
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
    if (stop == std::string::npos) return std::nullopt;
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
  const size_t whole = text.find(syntax.end);
  const size_t end = whole == std::string::npos && is_all ? cut_marker(text, syntax.end) : whole;
  if (end == std::string::npos) return more_or_failed(is_all);
  std::string body;
  const std::string_view prefix = syntax.first;
  for (std::string_view rest = text.substr(0, end); !rest.empty();) {
    const size_t at = rest.find(prefix);
    body += rest.substr(0, at);
    rest.remove_prefix(at == std::string::npos ? rest.size() : at + prefix.size());
  }
  constexpr std::string_view kOpen = "<invoke name=\"";
  std::vector<ChatToolCall> calls;
  for (size_t at = skip_spaces(body, 0); at < body.size(); at = skip_spaces(body, at)) {
    const std::string_view rest = std::string_view(body).substr(at);
    const size_t name_end = rest.starts_with(kOpen) ? rest.find("\">") : std::string::npos;
    if (name_end == std::string::npos) return failed();
    ChatToolCall call;
    call.name = rest.substr(kOpen.size(), name_end - kOpen.size());
    NestedXml elements(rest.substr(name_end + 2), schemas, call.name);
    auto arguments = elements.content("invoke", "", 0);
    if (!arguments || call.name.empty()) return failed();
    call.arguments = std::move(*arguments);
    calls.push_back(std::move(call));
    at += name_end + 2 + elements.at();
  }
  return calls.empty() ? failed()
                       : Reading{Outcome::kDone, std::min(text.size(), end + std::string_view(syntax.end).size()),
                                 std::move(calls)};
}

}  // namespace redline
