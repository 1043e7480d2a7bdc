#include "chat/chat_template.h"

#include <algorithm>
#include <filesystem>

#include "base/json_text.h"
#include "base/mapped_file.h"
#include "chat/chat_output.h"
#include "chat/jinja/json.h"
#include "chat/jinja/operations.h"
#include "chat/jinja/template.h"
#include "text/hf_config.h"
#include "text/json_reader.h"

namespace redline {

struct ChatTemplate::Parts {
  std::string source;
  ChatTemplateOptions options;
  jinja::Template main;
  std::optional<jinja::Template> tool_use;
  std::string_view argument_form;
  ThinkingSwitch thinking;  ///< the template's switch of the thinking: it has a value `off`, or only values for efforts
  bool writes_tools = false;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

const std::string& ChatTemplate::source() const { return parts_->source; }
std::string_view ChatTemplate::argument_form() const { return parts_->argument_form; }
std::string_view ChatTemplate::thinking_switch() const { return *parts_->thinking.off ? parts_->thinking.name : ""; }
bool ChatTemplate::writes_tools() const { return parts_->writes_tools; }

Result<ChatTemplate> ChatTemplate::compile(std::string source, ChatTemplateOptions options) {
  REDLINE_ASSIGN(jinja::Template main, jinja::Template::compile(source).within("chat template"));
  std::optional<jinja::Template> tool_use;
  if (!options.tool_use.empty()) {
    REDLINE_ASSIGN(tool_use, jinja::Template::compile(options.tool_use).within("chat template tool_use"));
  }
  ChatTemplate compiled(std::unique_ptr<Parts>(
      new Parts{std::move(source), std::move(options), std::move(main), std::move(tool_use), "", {}, false}));
  compiled.probe_arguments();
  compiled.probe_thinking();
  compiled.probe_tools();
  return compiled;
}

void ChatTemplate::probe_tools() {
  if (parts_->source.find("tools") == std::string::npos && !parts_->tool_use) return;
  constexpr std::string_view kTools = R"([{"type": "function", "function": {"name": "needle", "description": "d",
    "parameters": {"type": "object", "properties": {"p": {"type": "string", "description": "d"}}, "required": ["p"]}}}])";
  for (const char* messages : {R"([{"role": "user", "content": "u"}])",
                               R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])"}) {
    const auto text = render({messages, kTools, "", true});
    if (text.ok() && text->find("needle") != std::string::npos) parts_->writes_tools = true;
  }
}

namespace {

/// Returns the messages with a word at the end of the system message.
std::string with_system_word(std::string_view messages_json, std::string_view word) {
  using MessagesJson = nlohmann::ordered_json;
  MessagesJson messages = parse_json_or_discard<MessagesJson>(messages_json);
  if (!messages.is_array()) return std::string(messages_json);  // render() reports this error
  const bool has_system = !messages.empty() && messages[0].is_object() && messages[0].value("role", "") == "system" &&
                          messages[0].contains("content");
  if (has_system && messages[0]["content"].is_string()) {
    const std::string content = messages[0]["content"];
    messages[0]["content"] = content.empty() ? std::string(word) : fmt::format("{}\n{}", content, word);
  } else if (has_system && messages[0]["content"].is_array()) {
    messages[0]["content"].push_back({{"type", "text"}, {"text", word}});
  } else {
    messages.insert(messages.begin(), MessagesJson{{"role", "system"}, {"content", word}});
  }
  return messages.dump(-1, ' ', false, MessagesJson::error_handler_t::replace);
}

bool is_system_word(const ThinkingSwitch& one) { return *one.name == '/'; }

}  // namespace

void ChatTemplate::probe_thinking() {
  constexpr std::string_view kMessages = R"([{"role": "user", "content": "needle"}])";
  // Returns the part of the prompt after the user's message. A change there shows that the switch has an effect; the
  // word that was added to the system message does not.
  const auto end_of = [](const Result<std::string>& text) {
    return text.ok() ? text->substr(std::min(text->rfind("needle"), text->size())) : std::string();
  };
  for (const ThinkingSwitch& one : possible_thinking_switches(parts_->source)) {
    if (!*one.off) {
      parts_->thinking = one;
      return;
    }
    const auto rendered = [&](const char* value) {
      if (is_system_word(one)) return render({with_system_word(kMessages, value), "", "", true});
      return render({kMessages, "", fmt::format(R"({{"{}": {}}})", one.name, value), true});
    };
    const auto off = rendered(one.off), on = rendered(one.on);
    const bool shows_anything = is_system_word(one) || std::string_view(one.name) == "reasoning_effort";
    const bool differs = shows_anything ? end_of(off) != end_of(on) : off.ok() && on.ok() && *off != *on;
    if (!off.ok() || !differs) continue;
    parts_->thinking = one;
    return;
  }
}

void ChatTemplate::probe_arguments() {
  if (parts_->source.find("arguments") == std::string::npos && parts_->options.tool_use.empty()) return;
  constexpr std::string_view kTools = R"([{"type": "function", "function": {"name": "probe", "description": "d",
    "parameters": {"type": "object", "properties": {"needle": {"type": "string"}}, "required": []}}}])";
  const auto shows = [&](std::string_view arguments, std::string_view content) {
    const std::string messages = fmt::format(
        R"([{{"role": "user", "content": "u"}}, {{"role": "assistant", "content": {},
        "tool_calls": [{{"id": "probe0001",
           "type": "function", "function": {{"name": "probe", "arguments": {}}}}}]}}])",
        content, arguments);
    const auto text = render({messages, kTools, "", false});
    return text.ok() && text->find("thread") != std::string::npos && text->find("{'needle'") == std::string::npos;
  };
  for (const std::string_view content : {R"("")", "null"}) {
    if (shows(R"({"needle": "thread"})", content)) parts_->argument_form = "object";
    else if (shows(R"("{\"needle\": \"thread\"}")", content)) parts_->argument_form = "text";
    if (!parts_->argument_form.empty()) return;
  }
}

namespace {

/// Converts the arguments of tool calls to the form that the template takes, objects or strings.
void adapt_arguments(jinja::Evaluation& e, jinja::Value messages, bool to_objects) {
  using jinja::Kind;
  const auto member_of = [](jinja::Value object, std::string_view name) {
    const jinja::Value* found = object.is_dict() ? jinja::find(*object.as_dict(), name) : nullptr;
    return found ? *found : jinja::Value::missing();
  };
  for (const jinja::Value message : messages.as_list()->span()) {
    const jinja::Value calls = member_of(message, "tool_calls");
    if (!calls.is(Kind::kList)) continue;
    for (const jinja::Value call : calls.as_list()->span()) {
      const jinja::Value inner = member_of(call, "function");
      const jinja::Value function = inner.is_dict() ? inner : call;
      const jinja::Value arguments = member_of(function, "arguments");
      jinja::Value adapted;
      if (to_objects && arguments.is_string()) {
        // Text that is not JSON stays text; the template handles it.
        if (arguments.text().empty()) adapted = jinja::Value::dict(e.make_dict());
        else if (nlohmann::json::accept(arguments.text()))
          if (auto parsed = jinja::parse_json_value(e, arguments.text(), "arguments"); parsed.ok() && parsed->is_dict())
            adapted = *parsed;
      } else if (!to_objects && arguments.is_dict()) {
        std::string text;
        jinja::append_json(e, text, arguments, {});
        adapted = e.string(text);
      }
      if (!adapted.is_missing()) jinja::set(e, *function.as_dict(), e.string("arguments"), adapted);
    }
  }
}

}  // namespace

namespace {

constexpr std::string_view kThinkingLevels[] = {"none",   "off",  "on",    "minimal", "low",
                                                "medium", "high", "xhigh", "max",     "auto"};

/// The settings of a thinking level: variables of the template, and the word for the system message ("": none).
struct ThinkingSettings {
  std::string variables_json, system_word;
};

Result<ThinkingSettings> thinking_settings(const ThinkingSwitch& own, std::string_view source, std::string_view level) {
  ThinkingSettings settings;
  if (level.empty() || level == "auto") return settings;
  if (std::find(std::begin(kThinkingLevels), std::end(kThinkingLevels), level) == std::end(kThinkingLevels))
    return invalid_argument("thinking: expected one of {}, got \"{}\"", fmt::join(kThinkingLevels, ", "), level);
  const bool is_off = level == "none" || level == "off", is_effort = !is_off && level != "on";
  const bool is_low = is_off || level == "minimal" || level == "low";
  const auto effort_of = [&](const ThinkingSwitch& one) -> std::string {
    if (is_effort && !*one.low) return fmt::format("\"{}\"", level);
    if (is_effort && *one.low && !*one.off && level == "medium") return "\"medium\"";
    return is_low ? one.low : one.high;
  };
  constexpr std::string_view kEffort = "reasoning_effort";
  std::string variables;
  const auto add = [&](std::string_view name, std::string_view value) {
    if (!value.empty()) variables += fmt::format("{}\"{}\": {}", variables.empty() ? "" : ", ", name, value);
  };
  const bool is_own_effort = own.name == kEffort;
  if (*own.off && is_system_word(own)) settings.system_word = is_off ? own.off : own.on;
  else if (is_own_effort && is_effort) add(kEffort, effort_of(own));
  else if (*own.off) add(own.name, is_off ? own.off : own.on);
  else if (is_own_effort) add(kEffort, is_off ? own.low : own.high);
  if (!is_own_effort && is_effort && source.find(kEffort) != std::string_view::npos)
    add(kEffort, fmt::format("\"{}\"", level));
  if (!variables.empty()) settings.variables_json = "{" + variables + "}";
  return settings;
}

}  // namespace

Result<std::string> ChatTemplate::render(const ChatInput& input) const {
  try {
    jinja::Evaluation e(parts_->options.limits);
    e.now = parts_->options.now;
    jinja::Dict* variables = e.make_dict();
    const auto add_object = [&](std::string_view json, std::string_view what) -> Status {
      if (json.empty()) return {};
      REDLINE_ASSIGN(const jinja::Value object, jinja::parse_json_value(e, json, what));
      if (!object.is_dict()) return invalid_argument("{}: expected an object, got {}", what, jinja::type_name(object));
      for (const jinja::Entry& entry : object.as_dict()->span()) jinja::set(e, *variables, entry.key, entry.value);
      return {};
    };
    const auto add = [&](const char* name, jinja::Value value) { jinja::set(e, *variables, e.string(name), value); };
    add("documents", jinja::Value::none());
    REDLINE_TRY(add_object(parts_->options.special_tokens_json, "special tokens"));
    REDLINE_ASSIGN(const ThinkingSettings thinking,
                   thinking_settings(parts_->thinking, parts_->source, input.thinking));
    REDLINE_TRY(add_object(thinking.variables_json, "thinking"));
    REDLINE_TRY(add_object(input.variables_json, "template variables"));
    std::string marked;  // must outlive the parsed values, which may refer to it
    if (!thinking.system_word.empty()) marked = with_system_word(input.messages_json, thinking.system_word);
    REDLINE_ASSIGN(const jinja::Value messages,
                   jinja::parse_json_value(e, marked.empty() ? input.messages_json : marked, "messages"));
    if (!messages.is(jinja::Kind::kList))
      return invalid_argument("messages: expected a list, got {}", jinja::type_name(messages));
    if (input.adapt_arguments && !parts_->argument_form.empty())
      adapt_arguments(e, messages, parts_->argument_form == "object");
    add("messages", messages);
    jinja::Value tools = jinja::Value::none();
    if (!input.tools_json.empty()) {
      REDLINE_ASSIGN(tools, jinja::parse_json_value(e, input.tools_json, "tools"));
      if (!tools.is(jinja::Kind::kList) && !tools.is_none())
        return invalid_argument("tools: expected a list, got {}", jinja::type_name(tools));
    }
    add("tools", tools);
    add("add_generation_prompt", jinja::Value::boolean(input.add_generation_prompt));
    if (!tools.is_none() && parts_->tool_use)
      return parts_->tool_use->render(e, *variables).within("chat template tool_use");
    return parts_->main.render(e, *variables).within("chat template");
  } catch (const std::bad_alloc&) {
    return out_of_memory("the conversation needs more memory than there is");
  }
}

// Files
// ----------------------------------------------------------------------------------------------------------------

namespace {

/// Returns the variables that transformers makes of tokenizer_config.json.
Json special_tokens(const Json& config) {
  Json tokens = Json::object();
  const auto text_of = [](const Json& token) -> Json {
    if (token.is_string()) return token;
    const Json* content = member(token, "content");
    return content && content->is_string() ? *content : Json();
  };
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (const Json* token = member(config, name))
      if (Json text = text_of(*token); text.is_string()) tokens[name] = std::move(text);
  if (const Json* more = member(config, "additional_special_tokens"); more && more->is_array()) {
    Json texts = Json::array();
    for (const Json& token : *more)
      if (Json text = text_of(token); text.is_string()) texts.push_back(std::move(text));
    if (!texts.empty()) tokens["additional_special_tokens"] = std::move(texts);
  }
  if (const Json* more = member(config, "extra_special_tokens"); more && more->is_object())
    for (const auto& [name, token] : more->items())
      if (Json text = text_of(token); text.is_string()) tokens[name] = std::move(text);
  return tokens;
}

}  // namespace

Result<ChatTemplateSource> chat_template_from_folder(const std::string& folder) {
  const std::filesystem::path root(folder);
  std::error_code error;
  ChatTemplateSource source;
  REDLINE_ASSIGN(const ChatTemplates templates, chat_templates_from_folder(folder));
  for (const auto& [name, text] : templates) {
    if (name.empty()) source.text = text;
    if (name == "tool_use") source.tool_use = text;
  }
  if (source.text.empty() && std::filesystem::exists(root / "chat_template.json", error)) {
    const std::string path = (root / "chat_template.json").string();
    REDLINE_ASSIGN(const std::string text, read_text_file(path));
    REDLINE_ASSIGN(const Json json, parse_json(text, path));
    source.text = string_or(json, "chat_template", "");
  }
  if (source.text.empty()) source.text = source.tool_use;
  const std::string config = (root / "tokenizer_config.json").string();
  if (std::filesystem::exists(config, error)) {
    REDLINE_ASSIGN(const std::string text, read_text_file(config));
    REDLINE_ASSIGN(const Json json, parse_json(text, config));
    source.special_tokens_json = special_tokens(json).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return source;
}

// Built-in templates
// ---------------------------------------------------------------------------------------------------

namespace {

struct BuiltinTemplate {
  const char* name;
  const char* text;
};

constexpr BuiltinTemplate kBuiltins[] = {
    {"chatml", R"({%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- endif -%})"},
    {"llama2", R"({%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = '<<SYS>>\n' + message.content + '\n<</SYS>>\n\n' -%}
{%- elif message.role == 'user' -%}
{{ (bos_token | default('<s>')) + '[INST] ' + ns.system + message.content + ' [/INST]' }}
{%- set ns.system = '' -%}
{%- else -%}
{{ ' ' + message.content + ' ' + (eos_token | default('</s>')) }}
{%- endif -%}
{%- endfor -%})"},
    {"llama3", R"({{- bos_token | default('<|begin_of_text|>') -}}
{%- for message in messages -%}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + (message.content | trim) + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif -%})"},
    {"gemma", R"({{- bos_token | default('<bos>') -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = (message.content | trim) + '\n\n' -%}
{%- else -%}
{{ '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' + ns.system +
   (message.content | trim) + '<end_of_turn>\n' }}
{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<start_of_turn>model\n' }}
{%- endif -%})"},
    {"vicuna", R"({%- for message in messages -%}
{%- if message.role == 'system' -%}
{{ message.content + '\n\n' }}
{%- elif message.role == 'user' -%}
{{ 'USER: ' + message.content + '\n' }}
{%- else -%}
{{ 'ASSISTANT: ' + message.content + (eos_token | default('</s>')) + '\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ 'ASSISTANT:' }}
{%- endif -%})"},
};

}  // namespace

const char* builtin_chat_template(std::string_view name) {
  for (const BuiltinTemplate& builtin : kBuiltins)
    if (builtin.name == name) return builtin.text;
  return nullptr;
}

std::vector<std::string> builtin_chat_template_names() {
  std::vector<std::string> names;
  for (const BuiltinTemplate& builtin : kBuiltins) names.emplace_back(builtin.name);
  return names;
}

Result<std::string> read_chat_template(const std::string& file_or_name) {
  if (const char* text = builtin_chat_template(file_or_name)) return std::string(text);
  std::error_code error;
  if (std::filesystem::is_regular_file(file_or_name, error)) return read_text_file(file_or_name);
  return not_found("chat template {}: no such file, and none of the built-in ones ({})", file_or_name,
                   fmt::join(builtin_chat_template_names(), ", "));
}

}  // namespace redline
