// /v1/responses, OpenAI's Responses API. Its schemas and the events of one answer take it over 600 lines.
#include <map>

#include "base/utc_time.h"
#include "server/app.h"
#include "server/chat.h"
#include "server/event_stream.h"
#include "server/ids.h"
#include "server/response_items.h"

namespace redline::server {
namespace {

const Schema responses_open_schema{"AnyObject", {}, true};
const Field responses_any_item{"", kAny, ""};
/// The schema of tools: the fields of functions and custom tools, and of types that are skipped, which are listed so
/// that they are not reported as misspelled.
const Schema responses_tool_schema{
    "ResponseTool",
    {{"type", kString, "function, custom or namespace; tools of other types are skipped", {.required = true}},
     {"name", kString, "", {.min_length = 1, .max_length = 1000}},
     {"description", kString, ""},
     {"parameters", kObject, "a JSON Schema", {.object = &responses_open_schema}},
     {"format", kObject, "format of a custom tool's text: text, or a grammar", {.object = &responses_open_schema}},
     {"tools", kArray, "functions and custom tools of a namespace", {.items = &responses_any_item}},
     {"strict", kBoolean, "", {.is_ignored = true}},
     {"output_schema", kObject, "", {.is_ignored = true}},
     {"defer_loading", kBoolean, "", {.is_ignored = true}},
     {"allowed_callers", kArray, "", {.is_ignored = true}},
     {"execution", kString, "", {.is_ignored = true}},
     {"external_web_access", kBoolean, "", {.is_ignored = true}},
     {"search_context_size", kString, "", {.is_ignored = true}},
     {"search_content_types", kArray, "", {.is_ignored = true}},
     {"user_location", kObject, "", {.is_ignored = true}},
     {"filters", kAny, "", {.is_ignored = true}},
     {"server_label", kString, "", {.is_ignored = true}},
     {"server_url", kString, "", {.is_ignored = true}},
     {"server_description", kString, "", {.is_ignored = true}},
     {"connector_id", kString, "", {.is_ignored = true}},
     {"headers", kObject, "", {.is_ignored = true}},
     {"authorization", kString, "", {.is_ignored = true}},
     {"require_approval", kAny, "", {.is_ignored = true}},
     {"allowed_tools", kAny, "", {.is_ignored = true}},
     {"vector_store_ids", kArray, "", {.is_ignored = true}},
     {"max_num_results", kInteger, "", {.is_ignored = true}},
     {"ranking_options", kObject, "", {.is_ignored = true}},
     {"container", kAny, "", {.is_ignored = true}},
     {"environment", kAny, "", {.is_ignored = true}},
     {"display_width", kInteger, "", {.is_ignored = true}},
     {"display_height", kInteger, "", {.is_ignored = true}},
     {"background", kString, "", {.is_ignored = true}},
     {"input_fidelity", kString, "", {.is_ignored = true}},
     {"input_image_mask", kObject, "", {.is_ignored = true}},
     {"model", kString, "", {.is_ignored = true}},
     {"moderation", kString, "", {.is_ignored = true}},
     {"output_compression", kInteger, "", {.is_ignored = true}},
     {"output_format", kString, "", {.is_ignored = true}},
     {"partial_images", kInteger, "", {.is_ignored = true}},
     {"quality", kString, "", {.is_ignored = true}},
     {"size", kString, "", {.is_ignored = true}}}};
const Field responses_tool_item{"", kObject, "", {.object = &responses_tool_schema}};
const Schema responses_text_schema{
    "ResponseText",
    {{"format", kObject, "", {.object = &format_schema()}}, {"verbosity", kString, "", {.is_ignored = true}}}};
const Schema reasoning_schema{"ResponseReasoning",
                              {{"effort", kString, "a variable of the chat template", {.max_length = 100}},
                               {"summary", kString, "", {.is_ignored = true}},
                               {"generate_summary", kString, "", {.is_ignored = true}},
                               {"context", kString, "", {.is_ignored = true}},
                               {"mode", kString, "", {.is_ignored = true}}}};
const Field include_item{"", kString, "", {.max_length = 100}};
constexpr char kIncludesLogprobs[] = "message.output_text.logprobs";
const Schema conversation_of_response_schema{"ResponseConversation",
                                             {{"id", kString, "", {.required = true, .max_length = 1000}}}};
const Schema responses_stream_options_schema{
    "ResponseStreamOptions", {{"include_obfuscation", kBoolean, "there is none", {.is_ignored = true}}}};

std::vector<Field> request_fields() {
  std::vector<Field> fields = {
      {"input",
       kString | kArray,
       "a text, or items of a conversation",
       {.required = true, .max_items = 10000, .items = &response_item}},
      {"instructions", kString, "the system's message"},
      {"max_output_tokens",
       kInteger,
       "tokens to generate; default, and -1: what the context has room for",
       {.min = -1, .max = kMaxJsonInteger}},
      {"metadata",
       kObject,
       "data for the caller's own use; the response has them too",
       {.object = &responses_open_schema}},
      {"text", kObject, "", {.object = &responses_text_schema}},
      {"reasoning", kObject, "", {.object = &reasoning_schema}},
      {"tools", kArray, "functions that the model may call", {.max_items = 1000, .items = &responses_tool_item}},
      {"tool_choice",
       kString | kObject,
       "required: a tool is called; an object: this one is",
       {.choices = {"auto", "none", "required"}, .object = &tool_choice_schema}},
      {"parallel_tool_calls", kBoolean, "false: at most one call"},
      {"truncation", kString, "", {.only = {"disabled"}, .why = "is not supported: prompts are never cut"}},
      {"background", kBoolean,
       "answer at once, or with events: GET /v1/responses/{response} has the response when it is complete, and the "
       "events again"},
      {"include",
       kArray,
       "message.output_text.logprobs: log probabilities of each token; the others have no effect",
       {.max_items = 100, .items = &include_item}},
      {"context_management", kArray, "prompts are never cut", {.is_ignored = true}},
      {"max_tool_calls", kInteger, "tools are called by the client", {.min = 0, .is_ignored = true}},
      {"top_logprobs",
       kInteger,
       "also log probabilities of this many most likely tokens at each place",
       {.min = 0, .max = 20}},
      {"store", kBoolean, "keep the response for some time, for previous_response_id; default: true"},
      {"previous_response_id",
       kString,
       "a stored response whose conversation goes on; its instructions do not",
       {.max_length = 1000}},
      {"conversation",
       kString | kObject,
       "the id of a conversation, to which the input and the output are added",
       {.max_length = 1000, .object = &conversation_of_response_schema}},
      {"stream_options", kObject, "", {.object = &responses_stream_options_schema}},
  };
  return joined(joined(std::move(fields), thinking_fields()), generation_fields());
}
const Schema responses_request_schema{.name = "ResponseRequest",
                                      .fields = request_fields(),
                                      .refused = {{"prompt", "is not supported: no prompts are stored"}}};
const Schema responses_answer_schema{
    "Response",
    {{"id", kString, "", {.required = true}},
     {"object", kString, "", {.required = true, .choices = {"response"}}},
     {"created_at", kInteger, "", {.required = true}},
     {"status",
      kString,
      "",
      {.required = true, .choices = {"completed", "incomplete", "queued", "in_progress", "failed", "cancelled"}}},
     {"model", kString, "", {.required = true}},
     {"output", kArray, "items", {.required = true, .items = &responses_any_item}},
     {"usage",
      kObject,
      "null before the end",
      {.required = true, .object = &responses_open_schema, .is_nullable = true}}},
    true};

const Schema responses_query_schema{
    "ResponseQuery",
    {{"include", kArray, "", {.max_items = 8, .items = &include_item, .is_ignored = true}},
     {"stream", kBoolean, "answer with the events of a response that was made with background and stream"},
     {"starting_after",
      kInteger,
      "with stream: only events with a higher sequence_number",
      {.min = 0, .max = kMaxJsonInteger}},
     {"include_obfuscation", kBoolean, "events are not padded", {.is_ignored = true}}}};
const Schema responses_deleted_schema{"DeletedResponse",
                                      {{"id", kString, "", {.required = true}},
                                       {"object", kString, "", {.required = true, .choices = {"response"}}},
                                       {"deleted", kBoolean, "", {.required = true}}}};

/// The state that a request continues: a stored response, a conversation, or nothing.
struct Continued {
  Json messages = Json::array();
  Json items = Json::array();   ///< `messages` in the form in which the API lists items
  std::string conversation_id;  ///< "": none
};

Outcome<ChatPrompt> responses_prompt(Call& call, const Json& before) {
  const Json& body = call.body;
  ChatPrompt prompt;
  if (body.contains("instructions")) prompt.messages.push_back({{"role", "system"}, {"content", body["instructions"]}});
  prompt.messages.insert(prompt.messages.end(), before.begin(), before.end());
  const Json& input = body["input"];
  if (input.is_string()) prompt.messages.push_back({{"role", "user"}, {"content", input}});
  else if (input.empty()) return bad_request("input", "input is an empty list", "invalid_value");
  else if (auto error = append_messages(input, "input", prompt.messages, call.ignored)) return *error;
  prompt.several_calls = body.value("parallel_tool_calls", true);
  SERVER_ASSIGN(prompt.client_tools, response_tools(body.value("tools", Json::array())));
  note_ignored(call, prompt.client_tools.skipped);
  if (body.value("tool_choice", Json("auto")) != "none") prompt.tools = prompt.client_tools.for_prompt();
  prompt.variables = body.value("chat_template_kwargs", Json::object());
  prompt.thinking = thinking_of(body);
  if (body.contains("reasoning") && body["reasoning"].contains("effort")) prompt.thinking = body["reasoning"]["effort"];
  return prompt;
}

Json format_of(const Json& body) {
  return body.contains("text") && body["text"].contains("format") ? body["text"]["format"] : Json{{"type", "text"}};
}

class ResponseAnswer final : public ChatAnswer {
 public:
  ResponseAnswer(Call& call, const ModelChoice& choice, std::unique_ptr<Choices> choices, const ChatPrompt& prompt,
                 const GenerateRequest& request, const Continued& before)
      : ChatAnswer(call, choice, std::move(choices), wants(call, "stream") && !wants(call, "background"), prompt,
                   request.stop),
        events_(wants(call, "stream") && wants(call, "background") ? std::make_shared<ResponseEvents>() : nullptr),
        stored_(call.app.responses()), conversations_(call.app.conversations()), client_(call.http.client),
        has_logprobs_(request.num_logprobs >= 0), tools_(prompt.client_tools), messages_(prompt.messages),
        input_(before.items), num_earlier_(before.items.size()), conversation_id_(before.conversation_id) {
    const Json& body = call.body;
    if (body.contains("instructions")) messages_.erase(messages_.begin());
    const Json& input = body["input"];
    const Json given_items =
        listed_items(input.is_string() ? Json::array({{{"role", "user"}, {"content", input}}}) : input);
    input_.insert(input_.end(), given_items.begin(), given_items.end());
    const Json effort = body.contains("reasoning") ? body["reasoning"].value("effort", Json()) : Json();
    const auto given = [&](const char* name, const Json& otherwise) {
      return body.contains(name) ? body[name] : otherwise;
    };
    echoed_ = {{"background", body.value("background", false)},
               {"conversation", conversation_id_.empty() ? Json() : Json{{"id", conversation_id_}}},
               {"error", nullptr},
               {"incomplete_details", nullptr},
               {"instructions", given("instructions", nullptr)},
               {"max_output_tokens", given("max_output_tokens", nullptr)},
               {"metadata", given("metadata", Json::object())},
               {"parallel_tool_calls", given("parallel_tool_calls", true)},
               {"previous_response_id", given("previous_response_id", nullptr)},
               {"reasoning", {{"effort", effort}, {"summary", nullptr}}},
               {"service_tier", "default"},
               {"store", body.value("store", true)},
               {"temperature", shortest(request.sampling.temperature)},
               {"text", {{"format", format_of(body)}}},
               {"tool_choice", given("tool_choice", "auto")},
               {"tools", given("tools", Json::array())},
               {"top_p", shortest(request.sampling.top_p)},
               {"truncation", "disabled"}};
    if (streams() && echoed_["store"] == true) stored_.expect(id_, client_);
  }
  ~ResponseAnswer() override { stored_.stop_expecting(id_, client_); }
  ResponseAnswer(const ResponseAnswer&) = delete;
  ResponseAnswer& operator=(const ResponseAnswer&) = delete;
  /// Returns the response before its end.
  StoredResponse stored_so_far() const { return {id_, client_, unfinished("queued"), messages_, input_, events_}; }

 private:
  static bool wants(const Call& call, const char* name) { return call.body.value(name, false); }
  /// Returns the shortest decimal that gives this float32: 0.6, not 0.60000002384.
  static double shortest(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }
  enum class Open : uint8_t { kNone, kMessage, kReasoning, kCall, kCustomCall };

  Json response(const char* status) const {
    Json json = {
        {"id", id_}, {"object", "response"}, {"created_at", created_}, {"status", status}, {"model", model().name}};
    json["output"] = output_;
    json.update(echoed_);
    return json;
  }
  Json unfinished(const char* status) const {
    Json json = response(status);
    json["usage"] = nullptr;
    return json;
  }
  void send(const char* type, const Json& json, std::string& out) {
    if (events_) events_->append(type, json);
    else if (streams()) out += numbered_event(type, sequence_++, json);
  }
  Json place() const { return {{"item_id", item_["id"]}, {"output_index", output_.size()}, {"content_index", 0}}; }
  static Json with(Json json, const char* name, Json value) {
    json[name] = std::move(value);
    return json;
  }
  static Json text_part(const std::string& text, Json logprobs) {
    return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", std::move(logprobs)}};
  }

  void begin(std::string& out) override {
    const Json created = unfinished(events_ ? "queued" : "in_progress");
    send("response.created", {{"response", created}}, out);
    if (events_) send("response.queued", {{"response", created}}, out);
    else progress(out);
  }
  void progress(std::string& out) {
    if (std::exchange(is_in_progress_, true)) return;
    send("response.in_progress", {{"response", unfinished("in_progress")}}, out);
  }
  void open(Open kind, const ChatDelta& delta, std::string& out) {
    if (open_ == kind && kind != Open::kCall && kind != Open::kCustomCall) return;
    close(out);
    open_ = kind;
    text_.clear();
    logprobs_ = Json::array();
    if (kind == Open::kMessage)
      item_ = {{"id", new_id("msg_")},
               {"type", "message"},
               {"status", "in_progress"},
               {"role", "assistant"},
               {"content", Json::array()}};
    if (kind == Open::kReasoning)
      item_ = {{"id", new_id("rs_")},
               {"type", "reasoning"},
               {"status", "in_progress"},
               {"summary", Json::array()},
               {"content", Json::array()}};
    if (kind == Open::kCall || kind == Open::kCustomCall) {
      const ClientTool tool = tools_.find(delta.call.name);
      const bool is_custom = kind == Open::kCustomCall;
      item_ = {{"id", new_id(is_custom ? "ctc_" : "fc_")},
               {"type", is_custom ? "custom_tool_call" : "function_call"},
               {"status", "in_progress"},
               {"call_id", delta.call.id},
               {"name", tool.name},
               {is_custom ? "input" : "arguments", ""}};
      if (!tool.space.empty()) item_["namespace"] = tool.space;
    }
    send("response.output_item.added", {{"output_index", output_.size()}, {"item", item_}}, out);
    if (kind == Open::kMessage)
      send("response.content_part.added", with(place(), "part", text_part("", Json::array())), out);
  }
  void close(std::string& out, const char* status = "completed") {
    if (open_ == Open::kNone) return;
    if (open_ == Open::kMessage) {
      send("response.output_text.done", with(with(place(), "text", text_), "logprobs", logprobs_), out);
      send("response.content_part.done", with(place(), "part", text_part(text_, logprobs_)), out);
      item_["content"].push_back(text_part(text_, logprobs_));
    } else if (open_ == Open::kReasoning) {
      send("response.reasoning_text.done", with(place(), "text", text_), out);
      item_["content"].push_back({{"type", "reasoning_text"}, {"text", text_}});
    } else if (open_ == Open::kCustomCall) {
      item_["input"] = text_;
      send("response.custom_tool_call_input.done",
           {{"item_id", item_["id"]}, {"output_index", output_.size()}, {"input", text_}}, out);
    } else {
      item_["arguments"] = text_;
      send("response.function_call_arguments.done",
           {{"item_id", item_["id"]}, {"output_index", output_.size()}, {"name", item_["name"]}, {"arguments", text_}},
           out);
    }
    item_["status"] = status;
    send("response.output_item.done", {{"output_index", output_.size()}, {"item", item_}}, out);
    output_.push_back(std::exchange(item_, nullptr));
    open_ = Open::kNone;
  }
  void on_token(const Event& event, std::string& out) override {
    progress(out);
    if (has_logprobs_) new_logprobs_.push_back(logprob_json(event));
  }
  void on_delta(size_t, const ChatDelta& delta, std::string& out) override {
    using Kind = ChatDelta::Kind;
    // Only messages have log probabilities.
    Json logprobs = std::exchange(new_logprobs_, Json::array());
    if (delta.kind == Kind::kContent) open(Open::kMessage, delta, out);
    if (delta.kind == Kind::kReasoning) open(Open::kReasoning, delta, out);
    const bool is_call = delta.kind == Kind::kToolCall;
    const bool is_custom = is_call && tools_.find(delta.call.name).is_custom;
    if (is_call) open(is_custom ? Open::kCustomCall : Open::kCall, delta, out);
    const std::string text = is_custom ? custom_input(delta.call.arguments)
                             : is_call ? delta.call.arguments
                                       : delta.text;
    if (text.empty()) return;
    text_ += text;
    if (open_ == Open::kMessage) {
      logprobs_.insert(logprobs_.end(), logprobs.begin(), logprobs.end());
      send("response.output_text.delta", with(with(place(), "delta", text), "logprobs", std::move(logprobs)), out);
    } else if (open_ == Open::kReasoning) {
      send("response.reasoning_text.delta", with(place(), "delta", text), out);
    } else {
      send(open_ == Open::kCustomCall ? "response.custom_tool_call_input.delta"
                                      : "response.function_call_arguments.delta",
           {{"item_id", item_["id"]}, {"output_index", output_.size()}, {"delta", text}}, out);
    }
  }
  void on_message(size_t, const ChatMessage& m, std::string& out) override {
    progress(out);
    if (m.content.empty() && m.tool_calls.empty()) open(Open::kMessage, {}, out);
    close(out, m.reason == FinishReason::kStop ? "completed" : "incomplete");
  }
  void end(std::string& out) override {
    const FinishReason reason = message(0).reason;
    const bool is_complete = reason == FinishReason::kStop;
    Json json = response(is_complete ? "completed" : "incomplete");
    if (!is_complete) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    json["usage"] = {{"input_tokens", prompt_tokens()},
                     {"input_tokens_details", reuse_json(facts.cached_tokens, cache_miss())},
                     {"output_tokens", generated_tokens()},
                     {"output_tokens_details", {{"reasoning_tokens", reasoning_tokens()}}},
                     {"total_tokens", prompt_tokens() + generated_tokens()}};
    if (!conversation_id_.empty()) add_to_conversation(json["output"]);
    send(is_complete ? "response.completed" : "response.incomplete", {{"response", json}}, out);
    if (events_) events_->close();
    if (echoed_["store"] == true) store(json);
    if (!streams()) out = to_text(json);
  }
  std::string error_event(const ApiError& error) const override {
    return numbered_event("error", sequence_, {{"code", error.code}, {"message", error.message}, {"param", nullptr}});
  }

  void add_to_conversation(const Json& output) {
    conversations_.update(conversation_id_, client_, [&](Conversation& c) {
      c.items.insert(c.items.end(), input_.begin() + static_cast<std::ptrdiff_t>(num_earlier_), input_.end());
      c.items.insert(c.items.end(), output.begin(), output.end());
    });
  }
  void store(const Json& response) {
    const ChatMessage& m = message(0);
    Json answer = {{"role", "assistant"}, {"content", m.content}};
    if (!m.reasoning.empty()) answer["reasoning_content"] = m.reasoning;
    for (const ChatToolCall& call : m.tool_calls) answer["tool_calls"].push_back(tool_call_json(call));
    messages_.push_back(std::move(answer));
    StoredResponse kept = {id_, client_, response, std::move(messages_), std::move(input_), events_};
    if (streams()) stored_.keep_expected(std::move(kept));
    else stored_.keep(std::move(kept));
  }

  /// events of a streamed response in the background, which are made here; null for other responses
  const std::shared_ptr<ResponseEvents> events_;
  StoredResponses& stored_;
  Conversations& conversations_;
  const std::string client_;
  const bool has_logprobs_;
  const ClientTools tools_;
  const std::string id_ = new_id("resp_");
  const int64_t created_ = unix_time();
  Json messages_;  ///< messages without instructions
  Json input_;     ///< items as the API lists them, num_earlier_ of which are those of earlier requests
  const size_t num_earlier_;
  const std::string conversation_id_;  ///< "": none
  Json echoed_, output_ = Json::array(), item_;
  /// those of the open item; those of tokens without a delta yet
  Json logprobs_ = Json::array(), new_logprobs_ = Json::array();
  std::string text_;
  Open open_ = Open::kNone;
  size_t sequence_ = 0;  ///< number of the stream's next event
  bool is_in_progress_ = false;
};

/// Sends the events of a background response from a number on, and new ones as they are made. The response continues if
/// this answer ends early.
class ResponseEventsAnswer final : public Answer {
 public:
  ResponseEventsAnswer(std::shared_ptr<ResponseEvents> events, size_t next) : events_(std::move(events)), next_(next) {
    become_event_stream(*this);
  }
  ~ResponseEventsAnswer() override {
    if (listener_) events_->unlisten(*listener_);
  }
  void on_ready(std::function<void()> wake) override { listener_ = events_->listen(std::move(wake)); }
  Progress poll(std::string& body) override {
    constexpr size_t kMaxPart = size_t{64} << 10;
    const size_t begin_size = body.size();
    switch (events_->read(next_, kMaxPart, body)) {
      case ResponseEvents::Rest::kSome: return Progress::kMore;
      case ResponseEvents::Rest::kComes: return body.size() == begin_size ? Progress::kWaiting : Progress::kMore;
      case ResponseEvents::Rest::kNone: return Progress::kDone;
      case ResponseEvents::Rest::kDropped: break;
    }
    body += numbered_event("error", next_,
                           {{"code", "events_dropped"},
                            {"message",
                             "the events of this response were dropped, because they exceeded the limit of memory; the "
                             "response continues"},
                            {"param", nullptr}});
    return Progress::kDone;
  }
  std::string_view ping() const override { return kEventStreamPing; }

 private:
  const std::shared_ptr<ResponseEvents> events_;
  size_t next_;
  std::optional<uint64_t> listener_;
};

/// Replaces each item_reference by the item with that id, from the conversation that the request continues or from
/// stored responses. append_messages() leaves out references without an item, and reports them.
void resolve_references(Call& call, const Json& earlier) {
  std::map<std::string, std::vector<Json*>> wanted;
  for (Json& item : call.body["input"])
    if (item.value("type", std::string()) == "item_reference" && item.contains("id"))
      wanted[item["id"].get<std::string>()].push_back(&item);
  const auto take = [&](const Json& items) {
    for (const Json& known : items) {
      const auto found = wanted.find(known.value("id", std::string()));
      if (found == wanted.end()) continue;
      for (Json* item : found->second) *item = known;
      wanted.erase(found);
    }
  };
  if (!wanted.empty()) take(earlier);
  if (wanted.empty()) return;
  for (const auto& stored : call.app.responses().all(call.http.client)) {
    take(stored->response.value("output", Json::array()));
    take(stored->input);
  }
}

Outcome<Continued> continued(Call& call) {
  const Json& body = call.body;
  Continued before;
  if (const Json given = body.value("conversation", Json()); !given.is_null()) {
    if (body.contains("previous_response_id"))
      return bad_request("conversation", "conversation and previous_response_id exclude each other", "invalid_value");
    before.conversation_id = given.is_object() ? given["id"].get<std::string>() : given.get<std::string>();
    const auto found = call.app.conversations().find(before.conversation_id, call.http.client);
    if (!found) return no_conversation(before.conversation_id, "conversation");
    // Check the size of the input now. If the answer no longer fits later, the conversation stays as it was.
    if (found->bytes() + to_text(body["input"]).size() > call.app.conversations().max_bytes())
      return conversation_too_large(call.app.conversations(), "input");
    before.items = found->items;
    if (auto error = append_messages(found->items, "items", before.messages, call.ignored)) return *error;
    return before;
  }
  const std::string id = body.value("previous_response_id", std::string());
  if (id.empty()) return before;
  if (call.app.background().find(id, call.http.client))
    return bad_request("previous_response_id", fmt::format("the response \"{}\" is not complete yet", id),
                       "invalid_value");
  const auto found = call.app.responses().find(id, call.http.client);
  if (!found)
    return bad_request("previous_response_id",
                       fmt::format("there is no response \"{}\", or not any more; send the items of the conversation "
                                   "as input",
                                   id.substr(0, 64)),
                       "previous_response_not_found");
  if (const std::string status = found->response["status"]; status == "cancelled" || status == "failed")
    return bad_request("previous_response_id", fmt::format("the response \"{}\" has no answer: it is {}", id, status),
                       "invalid_value");
  before.messages = found->messages;
  before.items = found->input;
  const Json& output = found->response["output"];
  before.items.insert(before.items.end(), output.begin(), output.end());
  return before;
}

AnswerOr post_responses(Call& call) {
  const Json& body = call.body;
  const bool is_background = body.value("background", false);
  if (is_background && !body.value("store", true))
    return bad_request("background", "background needs store, which must not be false", "invalid_value");
  SERVER_ASSIGN(const ModelChoice choice, call.app.models().find(body.value("model", std::string())));
  if (body.contains("text") && body["text"].contains("format")) {
    SERVER_ASSIGN(call.constraint, constraint_of_format(body["text"]["format"], "text.format"));
  }
  SERVER_ASSIGN(GenerateRequest request, generation_request(call, choice));
  bool wants_logprobs = false;
  for (const Json& what : body.value("include", Json::array())) {
    if (what == kIncludesLogprobs) wants_logprobs = true;
    else if (call.ignored.empty() || call.ignored.back() != "include") call.ignored.emplace_back("include");
  }
  const int num_top = body.value("top_logprobs", 0);
  if (wants_logprobs || num_top > 0) request.num_logprobs = num_top;
  SERVER_ASSIGN(const Continued before, continued(call));
  if (body["input"].is_array()) resolve_references(call, before.items);
  SERVER_ASSIGN(ChatPrompt prompt, responses_prompt(call, before.messages));
  SERVER_ASSIGN(const ToolDemand demand, take_tool_choice(body, prompt));
  if (demand.is_forced)
    if (auto error = force_call(call, prompt, demand.name)) return *error;
  if (auto error = set_prompt(*choice.model, prompt, "input", request)) return *error;
  const int64_t context = choice.model->info().context;
  request.max_tokens = max_tokens_of(body, {"max_output_tokens"}, context, context);
  SERVER_ASSIGN(auto choices, start_choices(call, choice.model, {request}));
  auto answer = std::make_unique<ResponseAnswer>(call, choice, std::move(choices), prompt, request, before);
  if (!is_background) return std::unique_ptr<Answer>(std::move(answer));
  StoredResponse response = answer->stored_so_far();
  std::unique_ptr<Answer> first;
  if (response.events) first = std::make_unique<ResponseEventsAnswer>(response.events, 0);
  else first = json_answer(response.response);
  call.app.background().start(std::move(response), std::move(answer));
  return first;
}

ApiError no_response(const std::string& id) {
  return not_found_error("response_id", fmt::format("there is no response \"{}\", or not any more", id.substr(0, 64)),
                         "not_found");
}

/// Finds a response that is in progress or stored; nullptr: there is none.
std::shared_ptr<const StoredResponse> find_response(const Call& call) {
  const std::string& id = call.path_values[0];
  auto found = call.app.background().find(id, call.http.client);
  return found ? found : call.app.responses().find(id, call.http.client);
}

AnswerOr get_response(Call& call) {
  const auto found = find_response(call);
  if (!found) return no_response(call.path_values[0]);
  const bool streams = call.body.value("stream", false);
  if (!streams && call.body.contains("starting_after"))
    return bad_request("starting_after", "starting_after is for events, which need stream=true", "invalid_value");
  if (!streams) return json_answer(found->response);
  if (!found->events || found->events->is_dropped())
    return bad_request("stream",
                       found->events
                           ? "the events of this response were dropped, because they exceeded the limit of memory"
                           : "the response has no events: it was not made with background and stream",
                       "invalid_value");
  const int64_t before = call.body.value("starting_after", int64_t{-1});
  return std::unique_ptr<Answer>(
      std::make_unique<ResponseEventsAnswer>(found->events, static_cast<size_t>(before + 1)));
}

AnswerOr cancel_response(Call& call) {
  const std::string& id = call.path_values[0];
  auto found = call.app.background().cancel(id, call.http.client);
  if (!found) found = call.app.responses().find(id, call.http.client);
  if (!found) return no_response(id);
  if (found->response["background"] != true)
    return bad_request("response_id", "the response was not made in the background, so there is nothing to cancel",
                       "invalid_value");
  return json_answer(found->response);
}

AnswerOr get_input_items(Call& call) {
  const auto found = find_response(call);
  if (!found) return no_response(call.path_values[0]);
  SERVER_ASSIGN(const Json page, items_page(found->input, call.body));
  return json_answer(page);
}

AnswerOr delete_response(Call& call) {
  const std::string& id = call.path_values[0];
  const bool was_running = call.app.background().cancel(id, call.http.client) != nullptr;
  if (!call.app.responses().erase(id, call.http.client) && !was_running) return no_response(id);
  return json_answer({{"id", id}, {"object", "response"}, {"deleted", true}});
}

}  // namespace

std::vector<Endpoint> responses_endpoints() {
  return {{"POST",
           "/v1/responses",
           "text",
           "answer a conversation (OpenAI's Responses API)",
           {{200, "the response; with stream, events", &responses_answer_schema},
            {200, "with stream", nullptr, "text/event-stream"}},
           post_responses,
           {.request = &responses_request_schema, .needs_models = true, .error_statuses = {404}}},
          {"GET",
           "/v1/responses/{response}/input_items",
           "text",
           "what a stored response was made from",
           {{200, "the items, page by page", &items_list_schema}},
           get_input_items,
           {.query = &items_query_schema, .error_statuses = {404}}},
          {"GET",
           "/v1/responses/{response}",
           "text",
           "a stored response",
           {{200, "the response; with stream, events", &responses_answer_schema},
            {200, "with stream", nullptr, "text/event-stream"}},
           get_response,
           {.query = &responses_query_schema, .error_statuses = {404}}},
          {"POST",
           "/v1/responses/{response}/cancel",
           "text",
           "end a response that is made in the background",
           {{200, "the response", &responses_answer_schema}},
           cancel_response,
           {.error_statuses = {404}}},
          {"DELETE",
           "/v1/responses/{response}",
           "text",
           "forget a stored response",
           {{200, "it is gone", &responses_deleted_schema}},
           delete_response,
           {.error_statuses = {404}}}};
}

}  // namespace redline::server
