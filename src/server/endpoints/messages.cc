// POST /v1/messages and /v1/messages/count_tokens, Anthropic's API.
#include <algorithm>

#include "base/json_text.h"
#include "server/app.h"
#include "server/chat.h"
#include "server/event_stream.h"
#include "server/ids.h"
#include "server/sampling_fields.h"

namespace redline::server {
namespace {

const Schema messages_open_schema{"AnyObject", {}, true};
const Field messages_any_item{"", kAny, ""};
/// The schema of blocks in messages and in results of tools, with the fields of all types. Results of tools that only
/// Anthropic's servers run are left out, and named in X-Redline-Ignored.
const Schema block_schema{
    .name = "AnthropicBlock",
    .fields = {{"type", kString, "text, tool_use, tool_result, thinking, document ...", {.required = true}},
               {"text", kString, "text of a block of type text"},
               {"id", kString, "id of a tool_use", {.max_length = 1000}},
               {"name", kString, "name of the tool of a tool_use", {.max_length = 1000}},
               {"input", kObject, "arguments of a tool_use", {.object = &messages_open_schema}},
               {"tool_use_id", kString, "id of the tool_use that a tool_result answers", {.max_length = 1000}},
               {"content", kAny, "content of a tool_result or search_result: a text or blocks"},
               {"is_error", kBoolean, "no effect, because the content of a tool_result says so", {.is_ignored = true}},
               {"thinking", kString, "text of a block of type thinking"},
               {"source", kAny,
                "source of a document: {\"type\": \"text\", \"data\": ..} or {\"type\": \"content\", ..}"},
               {"title", kString, "title of a document or search_result"},
               {"context", kString, "context of a document"},
               {"tool_name", kString, "name in a tool_reference", {.max_length = 1000}},
               {"signature", kString, "", {.is_ignored = true}},
               {"data", kString, "", {.is_ignored = true}},
               {"citations", kAny, "", {.is_ignored = true}},
               {"caller", kObject, "", {.is_ignored = true}},
               {"toolset_name", kString, "", {.is_ignored = true}},
               {"cache_control", kObject, "", {.is_ignored = true}}},
    .refused = {}};
const Field block_item{"", kObject, "", {.object = &block_schema}};
const Schema messages_message_schema{
    "AnthropicMessage",
    {{"role",
      kString,
      "the author; messages of the system become part of `system`",
      {.required = true, .choices = {"user", "assistant", "system", "developer"}}},
     {"content", kString | kArray, "a text or blocks", {.required = true, .items = &block_item}}}};
const Field messages_message_item{"", kObject, "", {.object = &messages_message_schema}};
const Schema system_schema{"AnthropicSystemBlock",
                           {{"type", kString, "", {.required = true, .choices = {"text"}}},
                            {"text", kString, "", {.required = true}},
                            {"citations", kArray, "", {.is_ignored = true}},
                            {"cache_control", kObject, "", {.is_ignored = true}}}};
const Field system_item{"", kObject, "", {.object = &system_schema}};
const Schema messages_tool_schema{
    "AnthropicTool",
    {{"name", kString, "", {.min_length = 1, .max_length = 1000}},
     {"type", kString, "custom; tools of other types are skipped", {.max_length = 1000}},
     {"description", kString, ""},
     {"input_schema", kObject, "a JSON Schema; required for custom tools", {.object = &messages_open_schema}},
     {"strict", kBoolean, "", {.is_ignored = true}},
     {"input_examples", kArray, "", {.is_ignored = true}},
     {"eager_input_streaming", kBoolean, "calls are sent whole", {.is_ignored = true}},
     {"defer_loading", kBoolean, "", {.is_ignored = true}},
     {"allowed_callers", kArray, "", {.is_ignored = true}},
     {"max_uses", kInteger, "", {.is_ignored = true}},
     {"max_characters", kInteger, "", {.is_ignored = true}},
     {"max_content_tokens", kInteger, "", {.is_ignored = true}},
     {"allowed_domains", kArray, "", {.is_ignored = true}},
     {"blocked_domains", kArray, "", {.is_ignored = true}},
     {"user_location", kObject, "", {.is_ignored = true}},
     {"citations", kObject, "", {.is_ignored = true}},
     {"display_width_px", kInteger, "", {.is_ignored = true}},
     {"display_height_px", kInteger, "", {.is_ignored = true}},
     {"display_number", kInteger, "", {.is_ignored = true}},
     {"cache_control", kObject, "", {.is_ignored = true}}}};
const Field messages_tool_item{"", kObject, "", {.object = &messages_tool_schema}};
const Schema messages_choice_schema{
    "AnthropicToolChoice",
    {{"type",
      kString,
      "any: a tool is called; tool: the one of `name` is",
      {.required = true, .choices = {"auto", "none", "any", "tool"}}},
     {"name", kString, "name of the tool, for type tool", {.min_length = 1, .max_length = 1000}},
     {"disable_parallel_tool_use", kBoolean, "true: at most one call"}}};
const Schema thinking_schema{
    "AnthropicThinking",
    {{"type", kString, "", {.required = true, .choices = {"enabled", "disabled", "adaptive", "between_tools"}}},
     {"budget_tokens", kInteger, "", {.is_ignored = true}},
     {"display", kString, "", {.is_ignored = true}}}};
const Schema output_schema{"AnthropicOutputConfig",
                           {{"format", kObject, "JSON of a schema", {.object = &format_schema()}},
                            {"effort", kString, "a variable of the chat template", {.max_length = 100}}}};
const Schema metadata_schema{"AnthropicMetadata", {{"user_id", kString, "requests of one user share their turn"}}};
const Field messages_stop_item{"", kString, "", {.max_length = 1000}};

const std::vector<Field>& prompt_fields() {
  static const std::vector<Field> fields = {
      {"model", kString, "a name from /v1/models", {.required = true, .max_length = 1000}},
      {"messages",
       kArray,
       "the conversation",
       {.required = true, .min_items = 1, .max_items = 10000, .items = &messages_message_item}},
      {"system", kString | kArray, "a text or blocks", {.items = &system_item}},
      {"tools", kArray, "functions that the model may call", {.max_items = 1000, .items = &messages_tool_item}},
      {"tool_choice", kObject, "", {.object = &messages_choice_schema}},
      {"thinking", kObject, "a variable of the chat template", {.object = &thinking_schema}},
      {"output_config", kObject, "", {.object = &output_schema}},
      {"context_management", kObject, "prompts are never cut", {.is_ignored = true}},
      {"cache_control", kObject, "the prefix cache finds prompts by their tokens", {.is_ignored = true}},
      {"speed", kString, "there is one speed", {.is_ignored = true}},
      {"inference_geo", kString, "", {.is_ignored = true}},
      {"user_profile_id", kString, "", {.is_ignored = true}},
      {"workspace_id", kString, "", {.is_ignored = true}},
      {"diagnostics", kObject, "", {.is_ignored = true}}};
  return fields;
}

const std::vector<std::pair<std::string, std::string>> kRefused = {
    {"container", "is not supported: tools are called by the client"},
    {"mcp_servers", "is not supported: tools are called by the client"}};
const Schema messages_request_schema{
    .name = "AnthropicRequest",
    .fields = joined(
        prompt_fields(),
        {{"max_tokens", kInteger, "tokens to generate", {.required = true, .min = 1, .max = kMaxJsonInteger}},
         sampling_number("temperature"),
         sampling_number("top_p"),
         sampling_number("top_k"),
         {"stop_sequences", kArray, "strings that end the text", {.max_items = 16, .items = &messages_stop_item}},
         {"stop_in_reasoning", kBoolean, "true: stop strings also act on the thinking; default: on the answer only"},
         {"stream", kBoolean, "send events"},
         {"metadata", kObject, "", {.object = &metadata_schema}},
         {"service_tier", kString, "", {.is_ignored = true}}}),
    .refused = kRefused};
const Schema count_schema{.name = "AnthropicCountRequest", .fields = prompt_fields(), .refused = kRefused};
const Schema counted_schema{"AnthropicCount", {{"input_tokens", kInteger, "", {.required = true}}}};
const Schema usage_json_schema{
    "AnthropicUsage",
    {{"input_tokens", kInteger, "prompt tokens whose state was not reused", {.required = true}},
     {"output_tokens", kInteger, "", {.required = true}},
     {"cache_read_input_tokens", kInteger, "prompt tokens whose state was reused", {.required = true}},
     {"cache_creation_input_tokens", kInteger, "", {.required = true}},
     {"cache_miss", kString, "why no more prompt tokens were reused"}}};
const Schema messages_answer_schema{
    "AnthropicAnswer",
    {{"id", kString, "", {.required = true}},
     {"type", kString, "", {.required = true, .choices = {"message"}}},
     {"role", kString, "", {.required = true, .choices = {"assistant"}}},
     {"model", kString, "", {.required = true}},
     {"content", kArray, "blocks", {.required = true, .items = &messages_any_item}},
     {"stop_reason",
      kString,
      "",
      {.required = true, .choices = {"end_turn", "max_tokens", "stop_sequence", "tool_use"}}},
     {"stop_sequence", kString, "", {.required = true, .is_nullable = true}},
     {"usage", kObject, "", {.required = true, .object = &usage_json_schema}}}};

/// Converts the messages of a body to messages of OpenAI's chat API.
class MessageReader {
 public:
  /// Names of blocks that are left out are added to `ignored`.
  explicit MessageReader(std::vector<std::string>& ignored) : ignored_(ignored) {}

  /// Appends a message. It may become several messages of OpenAI's API, in which each result of a tool is a message.
  std::optional<ApiError> add(const Json& message, const std::string& path, Json& messages) {
    const std::string role = message["role"] == "developer" ? "system" : message["role"];
    if (message["content"].is_string()) {
      messages.push_back({{"role", role}, {"content", message["content"]}});
      return std::nullopt;
    }
    Json m = {{"role", role}, {"content", ""}};
    std::string text, reasoning;
    bool has_more = message["content"].empty();
    for (size_t i = 0; i < message["content"].size(); ++i) {
      const Json& block = message["content"][i];
      const std::string place = fmt::format("{}.content[{}]", path, i), type = block["type"];
      if (type == "tool_result") {
        if (auto error = need(block, "tool_use_id", "the id of the call that the tool answers", place)) return error;
        auto result = text_of(block.value("content", Json("")), place + ".content");
        if (!result.ok()) return result.error();
        messages.push_back({{"role", "tool"}, {"tool_call_id", block["tool_use_id"]}, {"content", std::move(*result)}});
        continue;
      }
      has_more = true;
      if (type == "thinking") {
        append(reasoning, block.value("thinking", std::string()));
      } else if (type == "tool_use") {
        if (auto error = need(block, "id", "the id that the result of the tool names", place)) return error;
        if (auto error = need(block, "name", "the tool that was called", place)) return error;
        m["tool_calls"].push_back(
            tool_call_json({block["id"], block["name"], to_text(block.value("input", Json::object()))}));
      } else {
        auto part = text_of_block(block, place);
        if (!part.ok()) return part.error();
        append(text, *part);
      }
    }
    m["content"] = text;
    if (!reasoning.empty()) m["reasoning_content"] = reasoning;
    if (has_more) messages.push_back(std::move(m));
    return std::nullopt;
  }

 private:
  /// Returns an error if the block does not have this string, or if it is empty.
  static std::optional<ApiError> need(const Json& block, const char* name, const char* what, const std::string& place) {
    if (!member(block, name).empty()) return std::nullopt;
    const std::string path = fmt::format("{}.{}", place, name);
    return bad_request(path, fmt::format("{} is missing: {}", path, what), "missing_required_parameter");
  }
  static void append(std::string& text, const std::string& more) {
    if (!more.empty()) text += (text.empty() ? "" : "\n") + more;
  }
  static std::string member(const Json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
  }

  /// Returns the text of a string or a list of blocks.
  Outcome<std::string> text_of(const Json& content, const std::string& path) {
    if (content.is_string()) return content.get<std::string>();
    if (!content.is_array()) return bad_request(path, path + " must be a string or an array", "invalid_type");
    std::string text;
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string place = fmt::format("{}[{}]", path, i);
      if (!content[i].is_object()) return bad_request(place, place + " must be an object", "invalid_type");
      SERVER_ASSIGN(const std::string part, text_of_block(content[i], place));
      append(text, part);
    }
    return text;
  }

  Outcome<std::string> text_of_block(const Json& block, const std::string& path) {
    const std::string type = member(block, "type");
    if (type == "text" || type == "compaction") {
      const char* name = type == "text" ? "text" : "content";
      if (!block.contains(name) || !block[name].is_string())
        return bad_request(fmt::format("{}.{}", path, name), fmt::format("{}.{} must be a string", path, name),
                           "invalid_type");
      return member(block, name);
    }
    if (type == "tool_reference") {
      const std::string name = member(block, "tool_name");
      if (name.empty())
        return bad_request(path + ".tool_name", path + ".tool_name is missing: the tool that was found",
                           "missing_required_parameter");
      return name;
    }
    if (type == "document") return document(block, path);
    if (type == "search_result") {
      std::string text = member(block, "title");
      append(text, member(block, "source"));
      SERVER_ASSIGN(const std::string found, text_of(block.value("content", Json("")), path + ".content"));
      append(text, found);
      return text;
    }
    if (type == "image" || type == "container_upload")
      return bad_request(path,
                         fmt::format("{} is of type {}, which is not supported: conversations consist of text, "
                                     "without images, sound and files",
                                     path, type),
                         "unsupported_value");
    const bool is_servers = type == "server_tool_use" || type == "redacted_thinking" || type == "mcp_tool_use" ||
                            type == "fallback" || type.ends_with("_tool_result");
    if (!is_servers)
      return bad_request(path + ".type",
                         fmt::format("{}.type is \"{}\"; it must be one of text, tool_use, tool_result, thinking, "
                                     "redacted_thinking, document, search_result, tool_reference",
                                     path, type.substr(0, 64)),
                         "invalid_value");
    const std::string name = fmt::format("messages[].content[{}]", type.substr(0, 64));
    if (std::find(ignored_.begin(), ignored_.end(), name) == ignored_.end()) ignored_.push_back(name);
    return std::string();
  }

  Outcome<std::string> document(const Json& block, const std::string& path) {
    const Json source = block.value("source", Json());
    std::string text = member(block, "title");
    append(text, member(block, "context"));
    const std::string type = source.is_object() ? member(source, "type") : "";
    if (type == "text" && source.contains("data") && source["data"].is_string()) {
      append(text, member(source, "data"));
      return text;
    }
    if (type == "content") {
      SERVER_ASSIGN(const std::string content, text_of(source.value("content", Json("")), path + ".source.content"));
      append(text, content);
      return text;
    }
    return bad_request(path + ".source",
                       fmt::format("{}.source is of type \"{}\", which is not supported: a document has its text in "
                                   "source.data, with type text, or in source.content, with type content",
                                   path, type.substr(0, 64)),
                       "unsupported_value");
  }

  std::vector<std::string>& ignored_;
};

/// Returns the text of the parameter `system` without Claude Code's first line, which is for its vendor's billing and
/// says nothing to the model. The line may differ in every request, so keeping it would prevent all reuse of later
/// text.
std::string system_text(const Json& system, Call& call) {
  constexpr std::string_view kBilling = "x-anthropic-billing-header:";
  if (system.is_string()) return system;
  Json blocks = Json::array();
  for (const Json& block : system) {
    const std::string text = block.value("text", std::string());
    if (!text.starts_with(kBilling) || text.find('\n') != std::string::npos) blocks.push_back(block);
    else note_ignored(call, {"system[x-anthropic-billing-header]"});
  }
  return text_of_parts(blocks);
}

Outcome<ChatPrompt> messages_prompt(Call& call) {
  const Json& body = call.body;
  ChatPrompt prompt;
  prompt.merges_system = true;
  if (const auto system = body.find("system"); system != body.end() && !system->empty())
    prompt.messages.push_back({{"role", "system"}, {"content", system_text(*system, call)}});
  MessageReader reader(call.ignored);
  for (size_t i = 0; i < body["messages"].size(); ++i)
    if (auto error = reader.add(body["messages"][i], fmt::format("messages[{}]", i), prompt.messages)) return *error;
  if (body["messages"].back()["role"] == "assistant") {  // the last message is the beginning of the answer
    prompt.continues_last = true;
    prompt.adds_generation_prompt = false;
  }
  const auto choice = body.find("tool_choice");
  if (choice != body.end()) prompt.several_calls = !choice->value("disable_parallel_tool_use", false);
  SERVER_ASSIGN(prompt.client_tools, message_tools(body.value("tools", Json::array())));
  note_ignored(call, prompt.client_tools.skipped);
  if (choice == body.end() || (*choice)["type"] != "none") prompt.tools = prompt.client_tools.for_prompt();
  std::optional<bool> thinks;
  if (const auto thinking = body.find("thinking"); thinking != body.end()) thinks = (*thinking)["type"] != "disabled";
  const auto output = body.find("output_config");
  prompt.thinking = thinking_of(thinks, output == body.end() ? "" : output->value("effort", std::string()));
  return prompt;
}

class MessageAnswer final : public ChatAnswer {
 public:
  MessageAnswer(Call& call, const ModelChoice& choice, std::unique_ptr<Choices> choices, const ChatPrompt& prompt,
                std::vector<std::string> stop, int64_t prompt_tokens)
      : ChatAnswer(call, choice, std::move(choices), call.body.value("stream", false), prompt, std::move(stop)),
        prompt_size_(prompt_tokens) {}
  std::string_view ping() const override { return "event: ping\ndata: {\"type\": \"ping\"}\n\n"; }

 private:
  Json head() const { return {{"id", id_}, {"type", "message"}, {"role", "assistant"}, {"model", model().name}}; }
  void begin(std::string& out) override {
    if (!streams()) return;
    Json message = head();
    message["content"] = Json::array();
    message["stop_reason"] = nullptr;
    message["stop_sequence"] = nullptr;
    message["usage"] = {{"input_tokens", prompt_size_},
                        {"output_tokens", 0},
                        {"cache_read_input_tokens", 0},
                        {"cache_creation_input_tokens", 0}};
    out += sse("message_start", {{"type", "message_start"}, {"message", std::move(message)}});
    out += sse("ping", {{"type", "ping"}});
  }
  void close_block(std::string& out) {
    if (block_ >= 0 && is_open_) out += sse("content_block_stop", {{"type", "content_block_stop"}, {"index", block_}});
    is_open_ = false;
  }
  void open_block(const ChatDelta& delta, std::string& out) {
    using Kind = ChatDelta::Kind;
    if (is_open_ && kind_ == delta.kind && delta.kind != Kind::kToolCall) return;
    close_block(out);
    ++block_;
    is_open_ = true;
    kind_ = delta.kind;
    Json block = {{"type", "text"}, {"text", ""}};
    if (kind_ == Kind::kReasoning) block = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    if (kind_ == Kind::kToolCall)
      block = {{"type", "tool_use"}, {"id", delta.call.id}, {"name", delta.call.name}, {"input", Json::object()}};
    out += sse("content_block_start",
               {{"type", "content_block_start"}, {"index", block_}, {"content_block", std::move(block)}});
  }
  void on_delta(size_t, const ChatDelta& delta, std::string& out) override {
    if (!streams()) return;
    open_block(delta, out);
    const bool is_call = delta.kind == ChatDelta::Kind::kToolCall;
    const std::string& text = is_call ? delta.call.arguments : delta.text;
    if (text.empty()) return;
    Json json = {{"type", "text_delta"}, {"text", text}};
    if (delta.kind == ChatDelta::Kind::kReasoning) json = {{"type", "thinking_delta"}, {"thinking", text}};
    if (is_call) json = {{"type", "input_json_delta"}, {"partial_json", text}};
    out += sse("content_block_delta", {{"type", "content_block_delta"}, {"index", block_}, {"delta", std::move(json)}});
  }
  static const char* reason_of(const ChatMessage& m) {
    if (m.reason != FinishReason::kStop) return "max_tokens";  // also if the text was cut within or after a call
    if (!m.tool_calls.empty()) return "tool_use";
    return m.stop.empty() ? "end_turn" : "stop_sequence";
  }
  Json usage() const {
    return {{"input_tokens", prompt_tokens() - facts.cached_tokens},
            {"output_tokens", generated_tokens()},
            {"cache_read_input_tokens", facts.cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_miss", cache_miss_name(cache_miss())}};
  }
  void end(std::string& out) override {
    const ChatMessage& m = message(0);
    const Json stop = m.stop.empty() ? Json(nullptr) : Json(m.stop);
    if (streams()) {
      if (block_ < 0) open_block({}, out);  // clients expect at least one block
      close_block(out);
      out += sse("message_delta", {{"type", "message_delta"},
                                   {"delta", {{"stop_reason", reason_of(m)}, {"stop_sequence", stop}}},
                                   {"usage", usage()}});
      out += sse("message_stop", {{"type", "message_stop"}});
      return;
    }
    Json content = Json::array();
    if (!m.reasoning.empty()) content.push_back({{"type", "thinking"}, {"thinking", m.reasoning}, {"signature", ""}});
    if (!m.content.empty() || m.tool_calls.empty()) content.push_back({{"type", "text"}, {"text", m.content}});
    for (const ChatToolCall& call : m.tool_calls) {
      Json input = parse_json_or_discard<Json>(call.arguments);
      if (!input.is_object()) input = Json::object();
      content.push_back({{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", std::move(input)}});
    }
    Json json = head();
    json["content"] = std::move(content);
    json["stop_reason"] = reason_of(m);
    json["stop_sequence"] = stop;
    json["usage"] = usage();
    out = to_text(json);
  }
  std::string error_event(const ApiError& error) const override {
    return fmt::format("event: error\ndata: {}\n\n", error_body(error, ErrorShape::kAnthropic));
  }

  const std::string id_ = new_id("msg_");
  const int64_t prompt_size_;
  int64_t block_ = -1;
  bool is_open_ = false;
  ChatDelta::Kind kind_ = ChatDelta::Kind::kContent;
};

AnswerOr post_messages(Call& call) {
  Json& body = call.body;
  SERVER_ASSIGN(const ModelChoice choice, call.app.models().find(body["model"].get<std::string>()));
  if (body.contains("stop_sequences")) body["stop"] = body["stop_sequences"];
  if (body.contains("metadata") && body["metadata"].contains("user_id")) body["user"] = body["metadata"]["user_id"];
  if (body.contains("output_config") && body["output_config"].contains("format")) {
    SERVER_ASSIGN(call.constraint, constraint_of_format(body["output_config"]["format"], "output_config.format"));
  }
  SERVER_ASSIGN(GenerateRequest request, generation_request(call, choice));
  SERVER_ASSIGN(ChatPrompt prompt, messages_prompt(call));
  if (const auto tool = body.find("tool_choice"); tool != body.end()) {
    const bool is_named = (*tool)["type"] == "tool";
    if (is_named && !tool->contains("name"))
      return bad_request("tool_choice.name", "tool_choice.name is missing: the tool to call",
                         "missing_required_parameter");
    if (is_named || (*tool)["type"] == "any")
      if (auto error = force_call(call, prompt, is_named ? (*tool)["name"].get<std::string>() : "")) return *error;
  }
  if (auto error = set_prompt(*choice.model, prompt, "messages", request)) return *error;
  request.max_tokens = body["max_tokens"];
  const auto prompt_tokens = std::ssize(request.prompt);
  SERVER_ASSIGN(auto choices, start_choices(call, choice.model, {request}));
  return std::unique_ptr<Answer>(
      std::make_unique<MessageAnswer>(call, choice, std::move(choices), prompt, request.stop, prompt_tokens));
}

AnswerOr post_count(Call& call) {
  SERVER_ASSIGN(const ModelChoice choice, call.app.models().find(call.body["model"].get<std::string>()));
  SERVER_ASSIGN(ChatPrompt prompt, messages_prompt(call));
  GenerateRequest request;
  if (auto error = set_prompt(*choice.model, prompt, "messages", request)) return *error;
  return json_answer({{"input_tokens", request.prompt.size()}});
}

}  // namespace

std::vector<Endpoint> messages_endpoints() {
  return {
      {"POST",
       "/v1/messages",
       "text",
       "answer a conversation (Anthropic's API)",
       {{200, "the answer; with stream, events", &messages_answer_schema},
        {200, "with stream", nullptr, "text/event-stream"}},
       post_messages,
       {.request = &messages_request_schema,
        .errors = ErrorShape::kAnthropic,
        .needs_models = true,
        .error_statuses = {404}}},
      {"POST",
       "/v1/messages/count_tokens",
       "tokens",
       "the tokens of a conversation (Anthropic's API)",
       {{200, "their number", &counted_schema}},
       post_count,
       {.request = &count_schema, .errors = ErrorShape::kAnthropic, .needs_models = true, .error_statuses = {404}}}};
}

}  // namespace redline::server
