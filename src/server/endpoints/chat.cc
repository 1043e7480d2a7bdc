// POST /v1/chat/completions and /apply-template.
#include "server/chat.h"
#include "base/utc_time.h"
#include "server/app.h"
#include "server/event_stream.h"
#include "server/ids.h"
#include "server/thinking_fields.h"

namespace redline::server {
namespace {

const Field chat_message_item{"", kObject, "", {.object = &chat_message_schema}};
const Field chat_tool_item{"", kObject, "", {.object = &chat_tool_schema}};
const Field chat_text_item{"", kString, "", {.choices = {"text"}}};
const Schema chat_stream_options_schema{
    "ChatStreamOptions",
    {{"include_usage", kBoolean, "a last event with the usage"},
     {"continuous_usage_stats", kBoolean, "the last event has the usage", {.is_ignored = true}},
     {"include_obfuscation", kBoolean, "there is none", {.is_ignored = true}}}};
const Field chat_document_item{"", kObject | kString, ""};

const std::vector<Field>& template_fields() {
  static const std::vector<Field> fields = joined(
      {
          {"messages",
           kArray,
           "the conversation",
           {.required = true, .min_items = 1, .max_items = 10000, .items = &chat_message_item}},
          {"tools", kArray, "functions that the model may call", {.max_items = 1000, .items = &chat_tool_item}},
          {"documents", kArray, "a variable of the chat template", {.max_items = 10000, .items = &chat_document_item}},
          {"add_generation_prompt", kBoolean, "end the prompt where the answer begins; default: true"},
          {"continue_final_message", kBoolean, "the answer continues the last message"},
      },
      thinking_fields());
  return fields;
}

const Schema chat_request_schema{
    .name = "ChatRequest",
    .fields = joined(
        joined(template_fields(), {{"max_tokens",
                                    kInteger,
                                    "tokens to generate; default, and -1: what the context has room for",
                                    {.min = kMinMaxTokens, .max = kMaxJsonInteger}},
                                   {"max_completion_tokens",
                                    kInteger,
                                    "another name of max_tokens",
                                    {.min = kMinMaxTokens, .max = kMaxJsonInteger}},
                                   {"n", kInteger, "answers", {.min = 1, .max = 128}},
                                   {"logprobs", kBoolean, "log probabilities of each token"},
                                   {"top_logprobs",
                                    kInteger,
                                    "also log probabilities of this many most likely tokens at each place",
                                    {.min = 0, .max = 20}},
                                   {"tool_choice",
                                    kString | kObject,
                                    "required: a tool is called; an object: this one is",
                                    {.choices = {"auto", "none", "required", "any"}, .object = &tool_choice_schema}},
                                   {"parallel_tool_calls", kBoolean, "false: at most one call"},
                                   {"modalities", kArray, "", {.items = &chat_text_item}},
                                   {"stream_options", kObject, "", {.object = &chat_stream_options_schema}}}),
        joined(joined(joined(generation_fields(), beam_fields()), reasoning_place_fields()), token_fields()))};
const Schema template_schema{
    .name = "ApplyTemplateRequest",
    .fields = joined(template_fields(), {{"model", kString, "a name from /v1/models", {.max_length = 1000}}})};
const Schema prompt_schema{"ApplyTemplateAnswer",
                           {{"prompt", kString, "the text that the model reads", {.required = true}}}};

const Field chat_any_item{"", kAny, ""}, chat_id_item{"", kInteger, ""};
const Schema answer_message_schema{"ChatAnswerMessage",
                                   {{"role", kString, "", {.required = true, .choices = {"assistant"}}},
                                    {"content", kString, "", {.required = true, .is_nullable = true}},
                                    {"refusal", kString, "", {.is_nullable = true}},
                                    {"reasoning_content", kString, "the model's reasoning before its answer"},
                                    {"tool_calls", kArray, "", {.items = &chat_any_item}}}};
const Schema chat_logprobs_schema{"ChatLogprobs",
                                  {{"content", kArray, "", {.required = true, .items = &chat_any_item}},
                                   {"refusal", kArray, "", {.is_nullable = true}}}};
const Schema chat_choice_schema{
    "ChatChoice",
    {{"index", kInteger, "", {.required = true}},
     {"message", kObject, "", {.required = true, .object = &answer_message_schema}},
     {"logprobs", kObject, "", {.required = true, .object = &chat_logprobs_schema, .is_nullable = true}},
     {"finish_reason", kString, "", {.required = true, .choices = {"stop", "length", "tool_calls"}}},
     {"stop_reason", kString, "the stop string that ended the text, or timeout"},
     {"token_ids", kArray, "with return_token_ids: ids of the answer", {.items = &chat_id_item}}}};
const Field chat_choice_item{"", kObject, "", {.object = &chat_choice_schema}};
const Schema chat_answer_schema{
    "ChatCompletion",
    {{"id", kString, "", {.required = true}},
     {"object", kString, "", {.required = true, .choices = {"chat.completion"}}},
     {"created", kInteger, "", {.required = true}},
     {"model", kString, "", {.required = true}},
     {"choices", kArray, "", {.required = true, .items = &chat_choice_item}},
     {"usage", kObject, "", {.required = true, .object = &usage_schema}},
     {"prompt_token_ids", kArray, "with return_token_ids: ids of the prompt", {.items = &chat_id_item}},
     {"prompt_logprobs",
      kArray,
      "log probabilities for each token of the prompt, by token id",
      {.items = &chat_any_item}}}};

/// Reads the prompt of a request. 400: malformed messages, or add_generation_prompt together with
/// continue_final_message.
Outcome<ChatPrompt> chat_prompt(Call& call, const TextEngine& engine) {
  const Json& body = call.body;
  if (auto error = check_messages(body["messages"], "messages", CallIds::kRequired)) return *error;
  ChatPrompt prompt;
  SERVER_ASSIGN(prompt.messages, plain_messages(body["messages"]));
  SERVER_ASSIGN(prompt.client_tools, chat_tools(body.value("tools", Json::array())));
  note_ignored(call, prompt.client_tools.skipped);
  if (body.value("tool_choice", Json("auto")) != "none") prompt.tools = prompt.client_tools.for_prompt();
  prompt.several_calls = body.value("parallel_tool_calls", true);
  prompt.variables = body.value("chat_template_kwargs", Json::object());
  prompt.thinking = thinking_of(body);
  if (const auto documents = body.find("documents"); documents != body.end()) {
    if (!prompt.variables.contains("documents")) prompt.variables["documents"] = *documents;
    if (engine.info().chat_template.find("documents") == std::string::npos) call.ignored.emplace_back("documents");
  }
  prompt.continues_last = body.value("continue_final_message", begins_answer(body["messages"].back()));
  if (prompt.continues_last && body.value("add_generation_prompt", false))
    return bad_request("add_generation_prompt",
                       "add_generation_prompt and continue_final_message exclude each other: the prompt ends with the "
                       "beginning of an answer, or within the last message",
                       "invalid_value");
  prompt.adds_generation_prompt = body.value("add_generation_prompt", !prompt.continues_last);
  return prompt;
}

class ChatCompletion final : public ChatAnswer {
 public:
  ChatCompletion(Call& call, const ModelChoice& choice, std::unique_ptr<Choices> choices, const ChatPrompt& prompt,
                 std::vector<std::string> stop, Json prompt_logprobs)
      : ChatAnswer(call, choice, std::move(choices), call.body.value("stream", false), prompt, std::move(stop)),
        has_logprobs_(call.body.value("logprobs", false)), fields_(call.body), tools_(prompt.client_tools),
        prompt_logprobs_(std::move(prompt_logprobs)) {
    if (fields_.returns_ids) prompt_ids_ = prompt.tokens;
    token_ids_.resize(this->choices().size(), Json::array());
    const auto options = call.body.find("stream_options");
    includes_usage_ = options != call.body.end() && options->value("include_usage", false);
    logprobs_.resize(this->choices().size(), Json::array());
  }

 private:
  Json head(const char* object) const {
    return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model().name}};
  }
  Json logprobs_json(size_t i) {
    if (!has_logprobs_) return nullptr;
    return {{"content", std::exchange(logprobs_[i], Json::array())}, {"refusal", nullptr}};
  }
  /// Adds what the first event of a stream, or a complete answer, has about the prompt.
  void add_prompt_to(Json& json) {
    if (fields_.returns_ids) json["prompt_token_ids"] = std::exchange(prompt_ids_, nullptr);
    if (fields_.prompt_logprobs >= 0) json["prompt_logprobs"] = std::exchange(prompt_logprobs_, nullptr);
  }
  void send(size_t choice, Json delta, Json finish, const std::string& stop_reason, std::string& out) {
    Json json = head("chat.completion.chunk");
    Json entry = {{"index", choice},
                  {"delta", std::move(delta)},
                  {"logprobs", logprobs_[choice].empty() ? Json(nullptr) : logprobs_json(choice)},
                  {"finish_reason", std::move(finish)}};
    if (!stop_reason.empty()) entry["stop_reason"] = stop_reason;
    if (fields_.returns_ids) entry["token_ids"] = std::exchange(token_ids_[choice], Json::array());
    json["choices"] = Json::array({std::move(entry)});
    if (!std::exchange(has_sent_prompt_, true)) add_prompt_to(json);
    if (includes_usage_) json["usage"] = nullptr;
    out += sse(json);
  }
  Json call_json(const ChatToolCall& call) const {
    if (!tools_.find(call.name).is_custom) return tool_call_json(call);
    return {{"id", call.id},
            {"type", "custom"},
            {"custom", {{"name", call.name}, {"input", custom_input(call.arguments)}}}};
  }
  static std::string stop_reason_of(const ChatMessage& m) {
    return m.reason == FinishReason::kTimeout ? "timeout" : m.stop;
  }

  void begin(std::string& out) override {
    if (!streams()) return;
    for (size_t i = 0; i < choices().size(); ++i) send(i, {{"role", "assistant"}, {"content", ""}}, nullptr, "", out);
  }
  void on_token(const Event& event, std::string& out) override {
    if (has_logprobs_) logprobs_[event.choice].push_back(logprob_json(event));
    if (fields_.returns_ids) token_ids_[event.choice].push_back(event.token);
  }
  void on_delta(size_t choice, const ChatDelta& delta, std::string& out) override {
    if (!streams()) return;
    Json json;
    switch (delta.kind) {
      case ChatDelta::Kind::kContent: json = {{"content", delta.text}}; break;
      case ChatDelta::Kind::kReasoning: json = {{"reasoning_content", delta.text}}; break;
      case ChatDelta::Kind::kToolCall: {
        Json call = call_json(delta.call);
        call["index"] = delta.index;
        json = {{"tool_calls", Json::array({std::move(call)})}};
        break;
      }
    }
    send(choice, std::move(json), nullptr, "", out);
  }
  void on_message(size_t choice, const ChatMessage& m, std::string& out) override {
    if (streams()) send(choice, Json::object(), openai_finish_reason(m), stop_reason_of(m), out);
  }
  Json usage() const {
    Json json = usage_json(prompt_tokens(), generated_tokens(), facts.cached_tokens, cache_miss());
    json["completion_tokens_details"] = {{"reasoning_tokens", reasoning_tokens()}};
    return json;
  }
  void end(std::string& out) override {
    if (streams()) {
      if (includes_usage_) {
        Json json = head("chat.completion.chunk");
        json["choices"] = Json::array();
        json["usage"] = usage();
        out += sse(json);
      }
      out += "data: [DONE]\n\n";
      return;
    }
    Json json = head("chat.completion");
    json["choices"] = Json::array();
    for (size_t i = 0; i < choices().size(); ++i) {
      const ChatMessage& m = message(i);
      Json text = {{"role", "assistant"},
                   {"content", m.content.empty() && !m.tool_calls.empty() ? Json(nullptr) : Json(m.content)},
                   {"refusal", nullptr}};
      if (!m.reasoning.empty()) text["reasoning_content"] = m.reasoning;
      for (const ChatToolCall& call : m.tool_calls) text["tool_calls"].push_back(call_json(call));
      Json choice = {{"index", i},
                     {"message", std::move(text)},
                     {"logprobs", logprobs_json(i)},
                     {"finish_reason", openai_finish_reason(m)}};
      if (const std::string stop = stop_reason_of(m); !stop.empty()) choice["stop_reason"] = stop;
      if (fields_.returns_ids) choice["token_ids"] = std::move(token_ids_[i]);
      json["choices"].push_back(std::move(choice));
    }
    json["usage"] = usage();
    add_prompt_to(json);
    out = to_text(json);
  }

  const bool has_logprobs_;
  const TokenFields fields_;
  const ClientTools tools_;
  bool includes_usage_ = false;
  const std::string id_ = new_id("chatcmpl-");
  const int64_t created_ = unix_time();
  std::vector<Json> logprobs_, token_ids_;  ///< values of each choice that have not been sent
  Json prompt_ids_ = nullptr, prompt_logprobs_ = nullptr;
  bool has_sent_prompt_ = false;
};

/// Returns prompt_logprobs if the request asks for them, else null.
Outcome<Json> prompt_logprobs_of(const Call& call, const ModelChoice& choice, const GenerateRequest& request) {
  const TokenFields fields(call.body);
  if (fields.prompt_logprobs < 0) return Json(nullptr);
  TextEngine& engine = choice.model->engine();
  const auto num_top = static_cast<size_t>(fields.prompt_logprobs);
  const auto scores = score_prompt(engine, request.prompt, request.adapters, num_top);
  if (!scores.ok()) return api_error(scores.status(), "messages");
  return prompt_logprobs_json(engine, request.prompt, *scores, num_top);
}

AnswerOr post_chat(Call& call) {
  const Json& body = call.body;
  SERVER_ASSIGN(const ModelChoice choice, call.app.models().find(body.value("model", std::string())));
  SERVER_ASSIGN(GenerateRequest request, generation_request(call, choice));
  SERVER_ASSIGN(ChatPrompt prompt, chat_prompt(call, choice.model->engine()));
  SERVER_ASSIGN(const ToolDemand demand, take_tool_choice(body, prompt));
  if (demand.is_forced)
    if (auto error = force_call(call, prompt, demand.name)) return *error;
  if (auto error = set_prompt(*choice.model, prompt, "messages", request)) return *error;
  const int64_t context = choice.model->info().context;
  request.max_tokens = max_tokens_of(body, {"max_completion_tokens", "max_tokens"}, context, context);
  if (auto error = take_logprobs(body, request)) return *error;
  SERVER_ASSIGN(const bool searches, asks_for_beams(call, request));
  SERVER_ASSIGN(Json prompt_logprobs, prompt_logprobs_of(call, choice, request));
  if (searches) {
    SERVER_ASSIGN(auto found, start_search(call, choice.model, request, {request.prompt}));
    return std::unique_ptr<Answer>(std::make_unique<ChatCompletion>(call, choice, std::move(found), prompt,
                                                                    request.stop, std::move(prompt_logprobs)));
  }
  std::vector<GenerateRequest> requests(body.value("n", size_t{1}), request);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].sampling.seed += i;
  SERVER_ASSIGN(auto choices, start_choices(call, choice.model, requests));
  return std::unique_ptr<Answer>(std::make_unique<ChatCompletion>(call, choice, std::move(choices), prompt,
                                                                  request.stop, std::move(prompt_logprobs)));
}

AnswerOr post_template(Call& call) {
  SERVER_ASSIGN(const ModelChoice choice, call.app.models().find(call.body.value("model", std::string())));
  SERVER_ASSIGN(const ChatPrompt prompt, chat_prompt(call, choice.model->engine()));
  SERVER_ASSIGN(const std::string text, render_chat(choice.model->engine(), prompt));
  return json_answer({{"prompt", text}});
}

}  // namespace

std::vector<Endpoint> chat_endpoints() {
  std::vector<Endpoint> all;
  for (const char* path : {"/v1/chat/completions", "/chat/completions"})
    all.push_back({"POST",
                   path,
                   "text",
                   "answer a conversation",
                   {{200, "the answers; with stream, events with their parts", &chat_answer_schema},
                    {200, "with stream", nullptr, "text/event-stream"}},
                   post_chat,
                   {.request = &chat_request_schema, .needs_models = true, .error_statuses = {404}}});
  all.push_back({"POST",
                 "/apply-template",
                 "tokens",
                 "the prompt of a conversation",
                 {{200, "the prompt", &prompt_schema}},
                 post_template,
                 {.request = &template_schema, .needs_models = true, .error_statuses = {404}}});
  return all;
}

}  // namespace redline::server
