#include "server/chat.h"

#include <algorithm>

#include "server/ids.h"
#include "server/prompt_messages.h"

namespace redline::server {

std::vector<std::pair<std::string, std::string>> refused_parts() {
  std::vector<std::pair<std::string, std::string>> refused;
  for (const char* name :
       {"image_url", "input_image", "source", "input_audio", "file", "file_id", "file_data", "video_url"})
    refused.emplace_back(name, "is not supported: conversations consist of text, without images, sound and files");
  return refused;
}

namespace {

const Schema part_schema{
    .name = "ContentPart",
    .fields = {{"type",
                kString,
                "",
                {.required = true, .choices = {"text", "input_text", "output_text", "refusal", "thinking"}}},
               {"text", kString, ""},
               {"refusal", kString, "text of a part of type refusal"},
               {"thinking", kString | kArray, "thoughts of a part of type thinking: a text, or parts of type text"}},
    .refused = refused_parts()};
const Field part_item{"", kObject, "", {.object = &part_schema}};
const Schema function_call_schema{"FunctionCall",
                                  {{"name", kString, "", {.required = true, .max_length = 1000}},
                                   {"arguments", kString | kObject, "JSON", {.required = true}}}};
const Schema custom_call_schema{
    "CustomCall",
    {{"name", kString, "", {.required = true, .max_length = 1000}}, {"input", kString, "a text", {.required = true}}}};
const Schema tool_call_schema{"ToolCall",
                              {{"id", kString, "", {.max_length = 1000}},
                               {"type", kString, "", {.choices = {"function", "custom"}}},
                               {"index", kInteger, ""},
                               {"function", kObject, "", {.object = &function_call_schema}},
                               {"custom", kObject, "the call of a custom tool", {.object = &custom_call_schema}}}};
const Field tool_call_item{"", kObject, "", {.object = &tool_call_schema}};
const Schema parameters_schema{"ToolParameters", {}, true};
const Schema function_schema{"ToolFunction",
                             {{"name", kString, "", {.required = true, .min_length = 1, .max_length = 1000}},
                              {"description", kString, ""},
                              {"parameters", kObject, "a JSON Schema", {.object = &parameters_schema}},
                              {"strict",
                               kBoolean,
                               "true: in a required call, a keyword that cannot be enforced is an error",
                               {.is_ignored = true}}}};
const Schema reasoning_detail_schema{"ReasoningDetail", {}, true};
const Field reasoning_detail_item{"", kObject, "", {.object = &reasoning_detail_schema}};

const Schema custom_tool_schema{"CustomTool",
                                {{"name", kString, "", {.required = true, .min_length = 1, .max_length = 1000}},
                                 {"description", kString, ""},
                                 {"format", kObject, "text, or a grammar", {.object = &parameters_schema}}}};

}  // namespace

const Schema chat_message_schema{
    "ChatMessage",
    {{"role",
      kString,
      "the author of the message",
      {.required = true, .choices = {"system", "developer", "user", "assistant", "tool", "function"}}},
     {"content", kString | kArray, "a text, or parts of type text", {.items = &part_item}},
     {"name", kString, "name of a tool or of a participant", {.max_length = 1000}},
     {"tool_calls", kArray, "calls that an assistant made", {.items = &tool_call_item}},
     {"tool_call_id", kString, "the call that a tool answers", {.max_length = 1000}},
     {"reasoning_content", kString, "reasoning of an assistant"},
     {"reasoning", kString, "another name of reasoning_content"},
     {"thinking", kString, "another name of reasoning_content"},
     {"reasoning_details", kArray, "reasoning in OpenRouter's form", {.items = &reasoning_detail_item}},
     {"thinking_blocks", kArray, "reasoning in LiteLLM's form", {.items = &reasoning_detail_item}},
     {"refusal", kString, "text with which an assistant refused to answer"},
     {"prefix", kBoolean, "true in the last message: the answer continues it"},
     {"partial", kBoolean, "another name of prefix"},
     {"images", kArray, "", {.only = {Json::array()}, .why = "is not supported: the model reads text"}},
     {"function_call", kObject, "a call of an assistant, instead of tool_calls", {.object = &function_call_schema}}}};
const Schema chat_tool_schema{"Tool",
                              {{"type", kString, "function or custom; others are skipped", {.required = true}},
                               {"function", kObject, "", {.object = &function_schema}},
                               {"custom", kObject, "a tool that takes a text", {.object = &custom_tool_schema}}}};

std::string text_of_parts(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  for (const Json& part : content) {
    const std::string type = part.value("type", std::string());
    if (type == "thinking") continue;
    text += (text.empty() ? "" : "\n") + part.value(type == "refusal" ? "refusal" : "text", std::string());
  }
  return text;
}

Json tool_call_json(const ChatToolCall& call) {
  return {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

namespace {

/// Joins the texts of a list of objects, each of which has its text under one of these names.
std::string joined_texts(const Json& list, std::initializer_list<const char*> names) {
  std::string text;
  for (const Json& entry : list)
    for (const char* name : names)
      if (const auto found = entry.find(name); found != entry.end() && found->is_string()) text += *found;
  return text;
}

/// Returns the reasoning of an assistant's message, which clients send under several names.
std::string reasoning_of(const Json& message) {
  for (const char* name : {"reasoning", "reasoning_content", "thinking"})
    if (const auto found = message.find(name); found != message.end()) return *found;
  for (const char* name : {"reasoning_details", "thinking_blocks"})
    if (const auto found = message.find(name); found != message.end())
      if (std::string text = joined_texts(*found, {"text", "thinking", "summary"}); !text.empty()) return text;
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return "";
  std::string text;
  for (const Json& part : *content)
    if (const auto thinking = part.find("thinking"); thinking != part.end())
      text += thinking->is_string() ? thinking->get<std::string>() : joined_texts(*thinking, {"text"});
  return text;
}

}  // namespace

bool begins_answer(const Json& message) {
  return message["role"] == "assistant" && (message.value("prefix", false) || message.value("partial", false));
}

std::optional<ApiError> check_messages(const Json& messages, const std::string& name, CallIds ids) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& m = messages[i];
    const std::string path = fmt::format("{}[{}]", name, i);
    const auto missing = [&](const char* field, const char* what) {
      return bad_request(path + field, fmt::format("{}{} is missing: {}", path, field, what),
                         "missing_required_parameter");
    };
    const auto has = [&](const char* field) { return m.contains(field) && !m[field].empty(); };
    const bool is_assistant = m["role"] == "assistant";
    if (ids == CallIds::kRequired && m["role"] == "tool" && !m.contains("tool_call_id"))
      return missing(".tool_call_id", "the id of the call that the tool answers");
    const bool has_more =
        is_assistant && (has("tool_calls") || has("function_call") || has("refusal") || !reasoning_of(m).empty());
    if (!m.contains("content") && !has_more && !has("images"))
      return missing(".content", is_assistant ? "an assistant's message has content, tool_calls or reasoning_content"
                                              : "a text, or parts");
    const auto content = m.find("content");
    if (content == m.end() || !content->is_array()) continue;
    for (size_t k = 0; k < content->size(); ++k) {
      const std::string type = (*content)[k].value("type", std::string());
      const char* field = type == "thinking" || type == "refusal" ? type.c_str() : "text";
      if ((type == "text" || type.ends_with("_text") || field != std::string_view("text")) &&
          !(*content)[k].contains(field))
        return bad_request(fmt::format("{}.content[{}].{}", path, k, field),
                           fmt::format("{}.content[{}].{} is missing", path, k, field), "missing_required_parameter");
    }
  }
  return std::nullopt;
}

Outcome<Json> plain_messages(const Json& messages) {
  Json plain = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    Json& m = plain.emplace_back(Json{{"role", message["role"] == "developer" ? Json("system") : message["role"]}});
    m["content"] =
        message.contains("content") ? text_of_parts(message["content"]) : message.value("refusal", std::string());
    for (const char* name : {"name", "tool_calls", "tool_call_id"})
      if (const auto found = message.find(name); found != message.end()) m[name] = *found;
    if (const auto call = message.find("function_call"); call != message.end() && !m.contains("tool_calls")) {
      const Json& arguments = (*call)["arguments"];
      m["tool_calls"] =
          Json::array({tool_call_json({fmt::format("call_{}", plain.size()), (*call)["name"],
                                       arguments.is_string() ? arguments.get<std::string>() : to_text(arguments)})});
    }
    if (const std::string reasoning = reasoning_of(message); !reasoning.empty()) m["reasoning_content"] = reasoning;
    if (m.contains("tool_calls"))
      for (size_t k = 0; k < m["tool_calls"].size(); ++k) {
        Json& call = m["tool_calls"][k];
        if (const auto custom = call.find("custom"); custom != call.end() && !call.contains("function"))
          call = tool_call_json(
              {call.value("id", std::string()), (*custom)["name"], custom_arguments((*custom)["input"])});
        const std::string path = fmt::format("messages[{}].tool_calls[{}].function", i, k);
        if (!call.contains("function"))
          return bad_request(path, path + " is missing: what was called", "missing_required_parameter");
      }
  }
  return plain;
}

namespace {

/// Renders a prompt, with the messages adapted to what the model's template accepts.
class PromptWriter {
 public:
  PromptWriter(const TextEngine& engine, const ChatPrompt& prompt)
      : engine_(engine), prompt_(prompt),
        messages_(merged_system_messages(prompt.messages,
                                         prompt.merges_system ? SystemMessages::kAll : SystemMessages::kLeading)),
        tools_(prompt.tools) {}

  Result<std::string> write() {
    const std::string& source = engine_.info().chat_template;
    if (source.find("tool") == std::string::npos && has_tool_messages(messages_))
      messages_ = tool_messages_as_text(messages_);
    Result<std::string> text = render(messages_);
    if (!tools_.is_null() && !engine_.info().has_tool_template) text = with_tools_as_text(std::move(text));
    if (!has_later_system_message(messages_) || (text.ok() && writes_system_messages(text.value(), messages_)))
      return text;
    Json merged = merged_system_messages(messages_, SystemMessages::kAll);
    Result<std::string> again = render(merged);
    if (!again.ok()) return text.ok() ? std::move(again) : std::move(text);
    messages_ = std::move(merged);
    return again;
  }
  /// Returns the messages as the template has written them.
  const Json& messages() const { return messages_; }

 private:
  Result<std::string> render(const Json& messages) const {
    const std::string text = to_text(messages), tools = tools_.is_null() ? "" : to_text(tools_);
    const std::string variables = prompt_.variables.empty() ? "" : to_text(prompt_.variables);
    return engine_.render_chat({.messages_json = text,
                                .tools_json = tools,
                                .variables_json = variables,
                                .add_generation_prompt = prompt_.adds_generation_prompt,
                                .adapt_arguments = true,
                                .thinking = prompt_.thinking});
  }
  /// Adds the tools as text to the system message or to the first user message, and renders again. Returns `text`,
  /// which has no tools, if the template leaves that out too.
  Result<std::string> with_tools_as_text(Result<std::string> text) {
    const std::string instructions = tools_as_text(std::exchange(tools_, nullptr));
    for (const bool in_user : {false, true}) {
      Json messages = with_instructions(messages_, instructions, in_user);
      Result<std::string> written = render(messages);
      if (!written.ok() || !writes_system_messages(written.value(), messages)) continue;
      messages_ = std::move(messages);
      return written;
    }
    return text;
  }

  const TextEngine& engine_;
  const ChatPrompt& prompt_;
  Json messages_, tools_;
};

}  // namespace

Outcome<std::string> render_chat(const TextEngine& engine, const ChatPrompt& prompt) {
  if (!engine.info().has_chat_template)
    return bad_request("messages",
                       fmt::format("{} has no chat template; use /v1/completions with the prompt in the model's own "
                                   "format, or start the server with --chat-template",
                                   engine.info().path),
                       "no_chat_template");
  PromptWriter writer(engine, prompt);
  Result<std::string> text = writer.write();
  if (!text.ok()) {
    ApiError error = api_error(text.status(), "messages");
    error.code = "chat_template_error";
    return error;
  }
  if (!prompt.continues_last) return std::move(text).value();
  // The text continues at the end of the last message's content, before the template's closing text.
  std::string content = writer.messages().back()["content"];
  content.erase(content.find_last_not_of(" \t\r\n") + 1);
  const size_t begin = text.value().rfind(content);
  if (content.empty() || begin == std::string::npos)
    return bad_request("messages",
                       "the last message has no content that the chat template writes as it is; it cannot be continued",
                       "invalid_value");
  return text.value().substr(0, begin + content.size());
}

std::optional<ApiError> set_prompt(ServedModel& model, ChatPrompt& prompt, const char* param,
                                   GenerateRequest& request) {
  const TextEngine& engine = model.engine();
  auto text = render_chat(engine, prompt);
  if (!text.ok()) return text.error();
  prompt.text = std::move(*text);
  prompt.scope = request.cache_salt;
  // The template writes the BOS token, so the tokenizer must not add one.
  if (auto error = check_text_size(engine.info(), prompt.text.size(), param)) return error;
  auto tokens = model.known_texts().encode(engine, prompt.scope, prompt.text, false, encode_limits(engine.info()));
  if (!tokens.ok()) return encode_error(tokens.status(), engine.info(), prompt.text.size(), param);
  request.prompt = prompt.tokens = std::move(tokens).value();
  request.special = engine.info().has_chat_markers;
  constexpr size_t kEnd = 8192;  // length of the prompt's end that is kept: the beginning of the answer
  request.chat_prompt = prompt.text.substr(prompt.text.size() - std::min(kEnd, prompt.text.size()));
  OutputConstraint& constraint = request.constraint;
  if (!prompt.forced_tools.is_null())
    constraint = {
        .kind = OutputConstraint::Kind::kToolCalls,
        .text = to_text(prompt.forced_tools),
        .json = {.is_compact = constraint.json.is_compact,
                 .allows_additional = constraint.json.allows_additional,
                 .is_relaxed = std::none_of(prompt.forced_tools.begin(), prompt.forced_tools.end(),
                                            [](const Json& tool) { return tool["function"].value("strict", false); })}};
  else if (constraint.kind == OutputConstraint::Kind::kJsonSchema && !prompt.tools.is_null())
    constraint.tools = to_text(prompt.tools);  // either a call, or text that matches the schema
  if (constraint.kind == OutputConstraint::Kind::kToolCalls || !constraint.tools.empty())
    constraint.allows_several_calls = prompt.several_calls;
  prompt.constraint = constraint.kind;
  return check_context(engine.info(), std::ssize(request.prompt), param);
}

std::optional<ApiError> force_call(Call& call, ChatPrompt& prompt, const std::string& name) {
  if (prompt.tools.is_null()) return bad_request("tool_choice", "tool_choice demands a call, and there are no tools");
  std::vector<std::string> names;
  Json chosen = Json::array();
  for (const Json& tool : prompt.tools) {
    names.push_back(tool["function"]["name"]);
    if (!name.empty() && names.back() != name) continue;
    chosen.push_back(tool);
    const ClientTool known = prompt.client_tools.find(names.back());
    if (!known.grammar.is_null()) chosen.back()["function"]["format"] = known.grammar;
    if (!known.is_strict) continue;
    chosen.back()["function"]["strict"] = true;
    for (const char* field : {"tools[].strict", "tools[].function.strict"}) std::erase(call.ignored, field);
  }
  if (chosen.empty())
    return bad_request("tool_choice",
                       fmt::format("there is no tool \"{}\"; there are {}", name.substr(0, 64), fmt::join(names, ", ")),
                       "invalid_value");
  prompt.forced_tools = std::move(chosen);
  call.constraint.field = "tools";  // errors of the schemas name this field
  return std::nullopt;
}

Outcome<ToolDemand> take_tool_choice(const Json& body, ChatPrompt& prompt) {
  const auto choice = body.find("tool_choice");
  if (choice == body.end()) return ToolDemand{};
  SERVER_ASSIGN(ToolDemand demand, tool_demand(*choice, prompt.client_tools, body.contains("messages")));
  if (*choice != "none") prompt.tools = prompt.client_tools.for_prompt();
  return demand;
}

ChatAnswer::ChatAnswer(Call& call, const ModelChoice& choice, std::unique_ptr<Choices> choices, bool streams,
                       const ChatPrompt& prompt, std::vector<std::string> stop)
    : GenerationAnswer(call, choice, std::move(choices), streams), names_ids_(TokenFields(call.body).names_ids),
      stop_(std::move(stop)), several_calls_(prompt.several_calls),
      includes_stop_(call.body.value("include_stop_str_in_output", false)),
      reasoning_place_(reasoning_place_of(call.body)), prompt_text_(prompt.text), scope_(prompt.scope),
      prompt_(prompt.tokens) {
  messages_.resize(this->choices().size());
  readers_.resize(messages_.size());
  is_reasoning_.resize(messages_.size());
  is_thinking_.resize(messages_.size());
  const std::string tools = prompt.tools.is_null() ? "" : to_text(prompt.tools);
  if (engine().info().has_chat_markers || !prompt.tools.is_null())
    for (auto& reader : readers_) reader = engine().chat_reader(prompt.text, tools, prompt.constraint);
  set_choices_per_prompt(messages_.size());
}

std::vector<ChatDelta> ChatAnswer::placed(size_t choice, std::vector<ChatDelta> deltas) {
  if (reasoning_place_ == ReasoningPlace::kApart) return deltas;
  std::vector<ChatDelta> all;
  for (ChatDelta& delta : deltas) {
    const bool is_reasoning = delta.kind == ChatDelta::Kind::kReasoning;
    if (reasoning_place_ == ReasoningPlace::kNowhere) {
      if (!is_reasoning) all.push_back(std::move(delta));
      continue;
    }
    if (is_reasoning != is_thinking_[choice]) all.push_back({.text = is_reasoning ? "<think>" : "</think>"});
    is_thinking_[choice] = is_reasoning;
    if (is_reasoning) delta.kind = ChatDelta::Kind::kContent;
    all.push_back(std::move(delta));
  }
  return all;
}

void ChatAnswer::apply(size_t choice, std::vector<ChatDelta> deltas, std::string& out) {
  ChatMessage& m = messages_[choice];
  for (ChatDelta& delta : placed(choice, std::move(deltas))) {
    switch (delta.kind) {
      case ChatDelta::Kind::kContent: m.content += delta.text; break;
      case ChatDelta::Kind::kReasoning: m.reasoning += delta.text; break;
      case ChatDelta::Kind::kToolCall:
        if (!several_calls_ && !m.tool_calls.empty()) continue;
        if (delta.call.id.empty()) delta.call.id = new_id("call_");
        m.tool_calls.push_back(delta.call);
        break;
    }
    on_delta(choice, delta, out);
  }
}

void ChatAnswer::take(const Event& event, std::string& out) {
  if (event.token >= 0) on_token(event, out);
  std::vector<ChatDelta> deltas;
  if (ChatReader* reader = readers_[event.choice].get()) reader->push(event.text, deltas);
  else if (!event.text.empty()) deltas.push_back({.text = event.text});
  if (event.token >= 0 && !deltas.empty())
    is_reasoning_[event.choice] = deltas.back().kind == ChatDelta::Kind::kReasoning;
  messages_[event.choice].reasoning_tokens += event.token >= 0 && is_reasoning_[event.choice];
  apply(event.choice, std::move(deltas), out);
}

Json ChatAnswer::logprob_json(const Event& event) const {
  return token_json(engine(), event.token, event.logprob, event.top, names_ids_);
}

const char* openai_finish_reason(const ChatMessage& message) {
  if (message.reason != FinishReason::kStop) return "length";
  return message.tool_calls.empty() ? "stop" : "tool_calls";
}

int64_t ChatAnswer::reasoning_tokens() const {
  int64_t count = 0;
  for (const ChatMessage& m : messages_) count += m.reasoning_tokens;
  return count;
}

void ChatAnswer::end_choice(size_t choice, const GenerateResult& result, std::string& out) {
  ChatMessage& m = messages_[choice];
  m.reason = result.reason;
  m.stop = matched_stop(engine(), result, stop_);
  std::vector<ChatDelta> deltas;
  ChatReader* const reader = readers_[choice].get();
  if (includes_stop_ && !m.stop.empty()) {
    if (reader) reader->push(m.stop, deltas);
    else deltas.push_back({.text = m.stop});
  }
  if (reader) reader->finish(deltas, result.reason != FinishReason::kStop);
  apply(choice, std::move(deltas), out);
  if (is_thinking_[choice]) {
    is_thinking_[choice] = false;
    apply(choice, {{.text = "</think>"}}, out);
  }
  if (m.stop.empty() && !prompt_.empty()) {  // after a stop string, the generated text continues beyond the answer
    std::vector<int32_t> tokens = prompt_;
    tokens.insert(tokens.end(), result.tokens.begin(), result.tokens.end());
    model().model->known_texts().add(scope_, prompt_text_ + result.text, std::move(tokens));
  }
  on_message(choice, m, out);
}

}  // namespace redline::server
