// Reasoning, tool calls and failures in the shape of each API, whole and streamed.
#include <gtest/gtest.h>

#include <thread>

#include "server/answers.h"
#include "server/chat.h"
#include "server/fake_engine.h"

namespace redline::server {
namespace {

using testing::FakeEngine;

// A template of the Hermes family, as its markers tell.
constexpr char kTemplate[] = "<tool_call> <think> {{ tools }}";
constexpr char kScript[] =
    "<think>Which city?</think>Let me see.<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
    "\"Ulm\"}}\n</tool_call>";

struct Fake {
  App app{{}};
  FakeEngine* engine;
  explicit Fake(std::string script, std::string chat_template = kTemplate) {
    auto made = std::make_unique<FakeEngine>(std::move(script), std::move(chat_template));
    engine = made.get();
    app.models().add(std::make_shared<ServedModel>("fake", std::move(made), 4));
    app.set_ready();
  }
  std::string post(const std::string& path, const Json& body, int status = 200) {
    HttpRequest call = make_request("POST", path, body.dump());
    const auto answer = app.handle(call);
    const std::string text = body_of(*answer);
    EXPECT_EQ(answer->status, status) << text;
    return text;
  }
};

Json chat_answers_with(Json body, const char* name, Json value) {
  body[name] = std::move(value);
  return body;
}

const Json kParameters = {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}};
const Json kTools =
    Json::array({{{"type", "function"}, {"function", {{"name", "weather"}, {"parameters", kParameters}}}}});
const Json kMessages = Json::array({{{"role", "user"}, {"content", "Weather?"}}});

TEST(ChatAnswers, OpenAi) {
  Fake fake(kScript);
  const Json body = {{"messages", kMessages}, {"tools", kTools}};
  const Json whole = Json::parse(fake.post("/v1/chat/completions", body)), choice = whole["choices"][0];
  EXPECT_TRUE(fake.engine->last.special);
  const int64_t thought = whole["usage"]["completion_tokens_details"]["reasoning_tokens"];
  EXPECT_GT(thought, 0);
  EXPECT_LT(thought, whole["usage"]["completion_tokens"]);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["reasoning_content"], "Which city?");
  EXPECT_EQ(choice["message"]["content"], "Let me see.");
  const Json& call = choice["message"]["tool_calls"][0];
  EXPECT_EQ(call["function"]["name"], "weather");
  EXPECT_EQ(Json::parse(call["function"]["arguments"].get<std::string>()), Json({{"city", "Ulm"}}));
  EXPECT_TRUE(call["id"].get<std::string>().starts_with("call_"));

  for (const size_t bytes : {1, 2, 7, 1000}) {
    fake.engine->piece_bytes = bytes;
    std::string content, reasoning, arguments, name, finish;
    for (const Json& event : events_of(fake.post("/v1/chat/completions", chat_answers_with(body, "stream", true)))) {
      const Json& c = event["choices"][0];
      content += c["delta"].value("content", "");
      reasoning += c["delta"].value("reasoning_content", "");
      for (const Json& part : c["delta"].value("tool_calls", Json::array())) {
        EXPECT_EQ(part["index"], 0);
        name += part["function"].value("name", "");
        arguments += part["function"]["arguments"];
      }
      if (!c["finish_reason"].is_null()) finish = c["finish_reason"];
    }
    EXPECT_EQ(content, "Let me see.");
    EXPECT_EQ(reasoning, "Which city?");
    EXPECT_EQ(name, "weather");
    EXPECT_EQ(arguments, call["function"]["arguments"]);
    EXPECT_EQ(finish, "tool_calls");
  }
}

TEST(ChatAnswers, Anthropic) {
  Fake fake(kScript);
  const Json tools = Json::array({{{"name", "weather"}, {"input_schema", kParameters}}});
  const Json body = {{"model", "fake"}, {"max_tokens", 100}, {"messages", kMessages}, {"tools", tools}};
  const Json whole = Json::parse(fake.post("/v1/messages", body));
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  ASSERT_EQ(whole["content"].size(), 3u);
  EXPECT_EQ(whole["content"][0]["thinking"], "Which city?");
  EXPECT_EQ(whole["content"][1]["text"], "Let me see.");
  EXPECT_EQ(whole["content"][2]["name"], "weather");
  EXPECT_EQ(whole["content"][2]["input"], Json({{"city", "Ulm"}}));

  std::vector<std::string> types, blocks;
  std::string json;
  for (const Json& event : events_of(fake.post("/v1/messages", chat_answers_with(body, "stream", true)))) {
    types.push_back(event["type"]);
    if (event["type"] == "content_block_start") blocks.push_back(event["content_block"]["type"]);
    if (event["type"] == "content_block_delta") json += event["delta"].value("partial_json", "");
  }
  EXPECT_EQ(types.front(), "message_start");
  EXPECT_EQ(types.back(), "message_stop");
  EXPECT_EQ(std::count(types.begin(), types.end(), "content_block_stop"), 3);
  EXPECT_EQ(blocks, (std::vector<std::string>{"thinking", "text", "tool_use"}));
  EXPECT_EQ(Json::parse(json), whole["content"][2]["input"]);
}

TEST(ChatAnswers, Responses) {
  Fake fake(kScript);
  const Json tools = Json::array({{{"type", "function"}, {"name", "weather"}, {"parameters", kParameters}}});
  const Json body = {{"input", "Weather?"}, {"tools", tools}};
  const Json whole = Json::parse(fake.post("/v1/responses", body));
  ASSERT_EQ(whole["output"].size(), 3u);
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], "Which city?");
  EXPECT_EQ(whole["output"][1]["content"][0]["text"], "Let me see.");
  EXPECT_EQ(whole["output"][2]["name"], "weather");
  const auto events = events_of(fake.post("/v1/responses", chat_answers_with(body, "stream", true)));
  std::string arguments;
  for (const Json& event : events)
    if (event["type"] == "response.function_call_arguments.delta") arguments += event["delta"];
  EXPECT_EQ(arguments, whole["output"][2]["arguments"]);
  EXPECT_EQ(events.back()["type"], "response.completed");
  EXPECT_EQ(events.back()["response"]["output"].size(), 3u);
}

TEST(ChatAnswers, Ollama) {
  Fake fake(kScript);
  const Json body = {{"model", "fake"}, {"messages", kMessages}, {"tools", kTools}, {"stream", false}};
  const Json whole = Json::parse(fake.post("/api/chat", body));
  EXPECT_EQ(whole["message"]["thinking"], "Which city?");
  EXPECT_EQ(whole["message"]["content"], "Let me see.");
  EXPECT_EQ(whole["message"]["tool_calls"][0]["function"]["arguments"], Json({{"city", "Ulm"}}));
}

/// The template is given the same messages whichever API a conversation with a call and its result comes by.
TEST(ChatAnswers, ConversationsOfEveryApiReachTheTemplateAlike) {
  Fake fake("ok");
  const auto rendered = [&](const std::string& path, const Json& body) {
    fake.post(path, body);
    const auto& tokens = fake.engine->last.prompt.tokens();
    const std::string text(tokens.begin(), tokens.end());
    Json messages = Json::parse(text.substr(0, text.find(']', text.rfind("sunny")) + 1));
    for (Json& message : messages)
      if (message.contains("tool_calls"))
        for (Json& call : message["tool_calls"]) call.erase("id");
    return messages;
  };
  const Json call = {
      {"id", "c1"}, {"type", "function"}, {"function", {{"name", "weather"}, {"arguments", "{\"city\":\"Ulm\"}"}}}};
  const Json openai = rendered("/v1/chat/completions",
                               {{"messages",
                                 {{{"role", "system"}, {"content", "Be kind."}},
                                  {{"role", "user"}, {"content", "Weather?"}},
                                  {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array({call})}},
                                  {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "sunny"}}}}});
  ASSERT_EQ(openai.size(), 4u);
  EXPECT_EQ(openai[2]["tool_calls"][0]["function"]["arguments"], "{\"city\":\"Ulm\"}");
  const Json anthropic = rendered(
      "/v1/messages",
      {{"model", "fake"},
       {"max_tokens", 5},
       {"system", "Be kind."},
       {"messages",
        {{{"role", "user"}, {"content", "Weather?"}},
         {{"role", "assistant"},
          {"content",
           Json::array({{{"type", "tool_use"}, {"id", "c1"}, {"name", "weather"}, {"input", {{"city", "Ulm"}}}}})}},
         {{"role", "user"},
          {"content", Json::array({{{"type", "tool_result"}, {"tool_use_id", "c1"}, {"content", "sunny"}}})}}}}});
  const Json responses = rendered(
      "/v1/responses",
      {{"instructions", "Be kind."},
       {"input",
        {{{"role", "user"}, {"content", "Weather?"}},
         {{"type", "function_call"}, {"call_id", "c1"}, {"name", "weather"}, {"arguments", "{\"city\":\"Ulm\"}"}},
         {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "sunny"}}}}});
  for (const Json* other : {&anthropic, &responses}) {
    ASSERT_EQ(other->size(), 4u) << other->dump();
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ((*other)[i]["role"], openai[i]["role"]);
      EXPECT_EQ((*other)[i]["content"], openai[i]["content"]);
      EXPECT_EQ((*other)[i].value("tool_calls", Json()), openai[i].value("tool_calls", Json()));
    }
  }
}

TEST(ChatAnswers, FailuresOfTheEngine) {
  Fake fake("text");
  fake.engine->failure = Status(Code::internal, "a step failed");
  const Json body = {{"messages", kMessages}};
  EXPECT_EQ(Json::parse(fake.post("/v1/chat/completions", body, 500))["error"]["message"], "a step failed");
  const auto events = events_of(fake.post("/v1/chat/completions", chat_answers_with(body, "stream", true)));
  EXPECT_EQ(events.back()["error"]["message"], "a step failed");
  fake.engine->failure = Status(Code::out_of_memory, "the cache is full");
  fake.post("/v1/chat/completions", body, 503);
  HttpRequest health = make_request("GET", "/health");
  const auto answer = fake.app.handle(health);
  EXPECT_EQ(Json::parse(body_of(*answer))["status"], "stalled");
  EXPECT_EQ(answer->status, 503);
}

TEST(ChatAnswers, ABackgroundResponseHasItsAnswerOrItsError) {
  Fake fake("text");
  const auto response_of = [&](const Json& begun) {
    HttpRequest get = make_request("GET", "/v1/responses/" + begun["id"].get<std::string>());
    while (true) {
      Json response = Json::parse(body_of(*fake.app.handle(get)));
      if (const std::string status = response["status"]; status != "queued" && status != "in_progress") return response;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  const Json body = {{"input", "a"}, {"background", true}};
  const Json begun = Json::parse(fake.post("/v1/responses", body)), answer = response_of(begun);
  EXPECT_EQ(begun["status"], "queued");
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "text");
  fake.engine->failure = Status(Code::internal, "a step failed");
  const Json failed = response_of(Json::parse(fake.post("/v1/responses", body)));
  EXPECT_EQ(failed["status"], "failed");
  EXPECT_EQ(failed["error"]["message"], "a step failed");
  EXPECT_TRUE(failed["usage"].is_null());
}

std::vector<Json> events_of_response(Fake& fake, const Json& id, const std::string& query) {
  HttpRequest request = make_request("GET", "/v1/responses/" + id.get<std::string>());
  request.query = query;
  const auto answer = fake.app.handle(request);
  EXPECT_EQ(answer->status, 200);
  EXPECT_TRUE(answer->is_stream);
  return events_of(body_of(*answer));
}

TEST(ChatAnswers, EventsOfABackgroundResponseAreThereAgain) {
  Fake fake("text");
  const Json body = {{"input", "a"}, {"background", true}, {"stream", true}};
  const auto events = events_of(fake.post("/v1/responses", body));
  std::vector<std::string> types;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence_number"], i);
    types.push_back(events[i]["type"]);
  }
  EXPECT_EQ(types, (std::vector<std::string>{"response.created", "response.queued", "response.in_progress",
                                             "response.output_item.added", "response.content_part.added",
                                             "response.output_text.delta", "response.output_text.delta",
                                             "response.output_text.done", "response.content_part.done",
                                             "response.output_item.done", "response.completed"}));
  EXPECT_EQ(events[0]["response"]["status"], "queued");
  EXPECT_EQ(events[2]["response"]["status"], "in_progress");
  const Json response = events.back()["response"], id = response["id"];
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "text");
  HttpRequest get = make_request("GET", "/v1/responses/" + id.get<std::string>());
  EXPECT_EQ(Json::parse(body_of(*fake.app.handle(get))), response);
  EXPECT_EQ(events_of_response(fake, id, "stream=true"), events);
  EXPECT_EQ(events_of_response(fake, id, "stream=true&starting_after=8"), (std::vector<Json>{events[9], events[10]}));
  EXPECT_TRUE(events_of_response(fake, id, "stream=true&starting_after=10").empty());

  fake.engine->failure = Status(Code::internal, "a step failed");
  const Json failed = events_of(fake.post("/v1/responses", body)).back();
  EXPECT_EQ(failed["type"], "response.failed");
  EXPECT_EQ(failed["response"]["status"], "failed");
  EXPECT_EQ(failed["response"]["error"]["message"], "a step failed");
  EXPECT_EQ(events_of_response(fake, failed["response"]["id"], "stream=true").back(), failed);
}

int status_of(Fake& fake, const char* method, const Json& id) {
  HttpRequest request = make_request(method, "/v1/responses/" + id.get<std::string>());
  return fake.app.handle(request)->status;
}

// Its client knows the id from the first event on. What is deleted must not be there at the end of the stream.
TEST(ChatAnswers, AStreamedResponseCanBeDeletedBeforeItsEnd) {
  Fake fake(std::string(3000, 'a'), kTemplate);  // its events are more than one part of the answer
  const Json body = {{"input", "a"}, {"stream", true}};
  for (const bool deletes : {true, false}) {
    HttpRequest call = make_request("POST", "/v1/responses", body.dump());
    const auto answer = fake.app.handle(call);
    std::string text;
    ASSERT_EQ(answer->poll(text), Progress::kMore);
    const Json id = events_of(text)[0]["response"]["id"];
    EXPECT_EQ(status_of(fake, "GET", id), 404);
    if (deletes) {
      EXPECT_EQ(status_of(fake, "DELETE", id), 200);
      EXPECT_EQ(status_of(fake, "DELETE", id), 404);
    }
    EXPECT_EQ(events_of(body_of(*answer)).back()["type"], "response.completed");
    EXPECT_EQ(status_of(fake, "GET", id), deletes ? 404 : 200);
    EXPECT_EQ(status_of(fake, "DELETE", id), deletes ? 404 : 200);
  }
  // One whose client has gone, and one that is not to be kept.
  for (const bool stores : {true, false}) {
    HttpRequest call = make_request("POST", "/v1/responses", chat_answers_with(body, "store", stores).dump());
    auto answer = fake.app.handle(call);
    std::string text;
    ASSERT_EQ(answer->poll(text), Progress::kMore);
    const Json id = events_of(text)[0]["response"]["id"];
    if (stores) answer.reset();
    EXPECT_EQ(status_of(fake, "DELETE", id), 404);
  }
}

TEST(ChatAnswers, ADeletedConversationStaysDeletedWhenAResponseToItEnds) {
  Fake fake(std::string(3000, 'a'), kTemplate);
  const Json conversation = Json::parse(fake.post("/v1/conversations", Json::object()))["id"];
  const std::string path = "/v1/conversations/" + conversation.get<std::string>();
  HttpRequest call = make_request("POST", "/v1/responses",
                                  Json{{"input", "a"}, {"stream", true}, {"conversation", conversation}}.dump());
  const auto answer = fake.app.handle(call);
  std::string text;
  ASSERT_EQ(answer->poll(text), Progress::kMore);
  HttpRequest remove = make_request("DELETE", path), get = make_request("GET", path);
  EXPECT_EQ(fake.app.handle(remove)->status, 200);
  const Json last = events_of(body_of(*answer)).back();
  EXPECT_EQ(last["type"], "response.completed");
  EXPECT_EQ(last["response"]["conversation"]["id"], conversation);
  EXPECT_EQ(fake.app.handle(get)->status, 404);
  EXPECT_EQ(status_of(fake, "GET", last["response"]["id"]), 200);  // responses stay
}

TEST(ChatAnswers, ABackgroundResponseGoesOnWithoutItsReader) {
  Fake fake("text");
  const auto num_running = std::make_shared<std::atomic<int>>(0);
  fake.engine->num_endless = num_running;
  HttpRequest call = make_request("POST", "/v1/responses", R"({"input": "a", "background": true, "stream": true})");
  auto answer = fake.app.handle(call);
  std::string text;
  while (text.find("response.output_text.delta") == std::string::npos) answer->poll(text);
  answer.reset();
  EXPECT_EQ(*num_running, 1);
  const Json id = events_of(text)[0]["response"]["id"];
  const std::string path = "/v1/responses/" + id.get<std::string>();
  std::vector<Json> read;
  std::thread reader([&] { read = events_of_response(fake, id, "stream=true&starting_after=1"); });
  EXPECT_EQ(Json::parse(fake.post(path + "/cancel", Json::object()))["status"], "cancelled");
  reader.join();
  EXPECT_EQ(*num_running, 0);
  EXPECT_EQ(read.front()["type"], "response.in_progress");
  EXPECT_EQ(read.back()["type"], "response.failed");
  EXPECT_EQ(read.back()["response"]["status"], "cancelled");
  EXPECT_TRUE(read.back()["response"]["error"].is_null());
  for (size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i]["sequence_number"], i + 2);
}

// A client that asks for events would wait for them in an answer without any.
TEST(ChatAnswers, AResponseWithoutEventsIsNotAnsweredAsEvents) {
  Fake fake("text");
  const Json begun = Json::parse(fake.post("/v1/responses", {{"input", "a"}}));
  const auto get = [&](const char* query) {
    HttpRequest request = make_request("GET", "/v1/responses/" + begun["id"].get<std::string>());
    request.query = query;
    const auto answer = fake.app.handle(request);
    const Json body = Json::parse(body_of(*answer));
    return std::pair(answer->status, answer->status == 200 ? body["id"] : body["error"]["param"]);
  };
  EXPECT_EQ(get("stream=false&include[]=reasoning.encrypted_content"), std::pair(200, begun["id"]));
  EXPECT_EQ(get("stream=true"), std::pair(400, Json("stream")));
  EXPECT_EQ(get("starting_after=3"), std::pair(400, Json("starting_after")));
  EXPECT_EQ(get("stream=true&starting_after=-1"), std::pair(400, Json("starting_after")));
  EXPECT_EQ(get("nonsense=1").first, 200) << "a name that no client sends is ignored";
}

TEST(ChatAnswers, AnAppEndsWithItsBackgroundResponses) {
  const auto num_running = std::make_shared<std::atomic<int>>(0);
  {
    Fake fake("text");
    fake.engine->num_endless = num_running;
    const Json begun = Json::parse(fake.post("/v1/responses", {{"input", "a"}, {"background", true}}));
    HttpRequest get = make_request("GET", "/v1/responses/" + begun["id"].get<std::string>());
    const auto status = [&] { return Json::parse(body_of(*fake.app.handle(get)))["status"]; };
    while (status() == "queued") std::this_thread::yield();
    EXPECT_EQ(status(), "in_progress");
    EXPECT_EQ(*num_running, 1);
  }
  EXPECT_EQ(*num_running, 0);
}

TEST(ChatAnswers, AStalledStepIsNotHealthy) {
  Fake fake("text");
  HttpRequest health = make_request("GET", "/health");
  EXPECT_EQ(fake.app.handle(health)->status, 200);
  fake.engine->now.is_stalled = true;
  const auto answer = fake.app.handle(health);
  EXPECT_EQ(answer->status, 503);
  EXPECT_NE(body_of(*answer).find("makes no progress"), std::string::npos);
}

TEST(ChatAnswers, SlowReaderTimeoutEndsAStream) {
  Fake fake(std::string(20 << 20, 'a'), "");
  fake.engine->piece_bytes = 1 << 20;
  HttpRequest call = make_request("POST", "/v1/completions", R"({"prompt": "a", "stream": true})");
  const auto answer = fake.app.handle(call);
  const auto events = events_of(body_of(*answer));
  EXPECT_NE(events.back()["error"]["message"].get<std::string>().find("not read for too long"), std::string::npos);
}

TEST(ChatAnswers, AModelWithoutTemplateSaysSo) {
  Fake fake("text", "");
  for (const auto& [path, body] : std::vector<std::pair<std::string, Json>>{
           {"/v1/chat/completions", {{"messages", kMessages}}},
           {"/v1/responses", {{"input", "a"}}},
           {"/v1/messages", {{"model", "fake"}, {"max_tokens", 1}, {"messages", kMessages}}},
           {"/v1/messages/count_tokens", {{"model", "fake"}, {"messages", kMessages}}},
           {"/api/chat", {{"model", "fake"}, {"messages", kMessages}}},
           {"/apply-template", {{"messages", kMessages}}}})
    EXPECT_NE(fake.post(path, body, 400).find("has no chat template"), std::string::npos) << path;
  const Json raw = {{"model", "fake"}, {"prompt", "a"}, {"stream", false}};
  EXPECT_EQ(Json::parse(fake.post("/api/generate", raw))["response"], "text");
}

// The constraint of an answer holds after its reasoning, which ends where the rendered prompt and the template say.
TEST(ChatAnswers, ConstraintsKnowThePrompt) {
  using Kind = OutputConstraint::Kind;
  Fake fake(kScript);
  const Json schema = {{"type", "object"}}, chat = {{"messages", kMessages}};
  const Json format = {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", schema}}}};
  const GenerateRequest& last = fake.engine->last;
  const auto post = [&](const char* path, Json body) {
    if (std::string_view(path) != "/v1/chat/completions") body["model"] = "fake";
    (void)fake.post(path, body);
    EXPECT_NE(last.chat_prompt, "") << path;
    EXPECT_NE(last.chat_prompt.find("Weather?"), std::string::npos) << path;
  };
  Json body = chat_answers_with(chat, "response_format", format);
  post("/v1/chat/completions", body);
  EXPECT_EQ(last.constraint.kind, Kind::kJsonSchema);
  EXPECT_EQ(last.constraint.tools, "");
  body["tools"] = kTools;
  post("/v1/chat/completions", body);
  EXPECT_EQ(last.constraint.kind, Kind::kJsonSchema);
  EXPECT_NE(last.constraint.tools.find("weather"), std::string::npos) << "a call, or text of the schema";
  body["tool_choice"] = "required";
  post("/v1/chat/completions", body);
  EXPECT_EQ(last.constraint.kind, Kind::kToolCalls) << "the format does not matter";
  body = chat_answers_with(chat, "guided_choice", {"yes"});
  body["tools"] = kTools;
  post("/v1/chat/completions", body);
  EXPECT_EQ(last.constraint.kind, Kind::kChoice);
  EXPECT_EQ(last.constraint.tools, "") << "only JSON may be a call instead";
  post("/v1/responses",
       {{"input", "Weather?"}, {"text", {{"format", {{"type", "json_schema"}, {"name", "x"}, {"schema", schema}}}}}});
  EXPECT_EQ(last.constraint.kind, Kind::kJsonSchema);
  body = chat_answers_with(chat, "output_config", {{"format", {{"type", "json_schema"}, {"schema", schema}}}});
  body["max_tokens"] = 9;
  post("/v1/messages", body);
  EXPECT_EQ(last.constraint.kind, Kind::kJsonSchema);
  post("/api/chat", chat_answers_with(chat, "format", schema));
  EXPECT_EQ(last.constraint.kind, Kind::kJsonSchema);
}

// Each API has its own field; the template has the switch.
TEST(ChatAnswers, ThinkingIsTurnedOffThroughEveryApi) {
  Fake fake(kScript);
  const auto ends_with = [&](const char* path, Json body, std::string_view level) {
    body["model"] = "fake";
    (void)fake.post(path, body);
    EXPECT_TRUE(fake.engine->last.chat_prompt.ends_with(level)) << path << ": " << fake.engine->last.chat_prompt;
  };
  const Json chat = {{"messages", kMessages}};
  ends_with("/v1/chat/completions", chat_answers_with(chat, "reasoning_effort", "none"), "]none");
  ends_with("/v1/chat/completions", chat_answers_with(chat, "reasoning_effort", "high"), "]high");
  ends_with("/v1/responses", {{"input", "Weather?"}, {"reasoning", {{"effort", "none"}}}}, "]none");
  const Json claude = chat_answers_with(chat, "max_tokens", 9);
  ends_with("/v1/messages", chat_answers_with(claude, "thinking", {{"type", "disabled"}}), "]off");
  ends_with("/v1/messages", chat_answers_with(claude, "output_config", {{"effort", "low"}}), "]low");
  ends_with("/api/chat", chat_answers_with(chat, "think", false), "]off");
  ends_with("/api/chat", chat_answers_with(chat, "think", "low"), "]low");
}

// A template that does not write tools has them as text in the system's message.
TEST(ChatAnswers, ToolsWithoutATemplateAreWritten) {
  for (const bool writes_tools : {true, false}) {
    Fake fake("Hello.", writes_tools ? "{{ tools }}" : "{{ messages }}");
    for (const bool is_demanded : {false, true}) {
      Json body = {{"messages", kMessages}, {"tools", kTools}};
      if (is_demanded) body["tool_choice"] = "required";
      HttpRequest call = make_request("POST", "/v1/chat/completions", body.dump());
      const auto answer = fake.app.handle(call);
      (void)body_of(*answer);
      EXPECT_EQ(header_of(*answer, "X-Redline-Ignored"), "");
      const auto& tokens = fake.engine->last.prompt.tokens();
      const std::string prompt(tokens.begin(), tokens.end());
      EXPECT_EQ(prompt.find("<tools>") != std::string::npos, !writes_tools) << prompt;
      EXPECT_NE(prompt.find("weather"), std::string::npos) << prompt;
    }
  }
}

}  // namespace
}  // namespace redline::server
