// Names, bytes and places of tokens in answers, and how answers that were cut end in every API.
#include "server/logprobs.h"

#include <gtest/gtest.h>

#include "server/answers.h"
#include "server/chat.h"
#include "server/fake_engine.h"

namespace redline::server {
namespace {

using testing::FakeEngine;

// A token of the fake engine is a byte: 0xC3 0xA9 is "é" in two tokens.
TEST(TokenName, BytesThatAreNoCharacterAreWrittenAsBytes) {
  const FakeEngine engine("");
  EXPECT_EQ(token_name(engine, 'a', false), "a");
  EXPECT_EQ(token_name(engine, 0xC3, false), "bytes:\\xc3");
  EXPECT_EQ(token_name(engine, 0xA9, false), "bytes:\\xa9");
  EXPECT_EQ(token_name(engine, 0xC3, true), "token_id:195");
}

TEST(TokenJson, HasTheTokensOwnBytes) {
  const FakeEngine engine("");
  const Json json = token_json(engine, 0xC3, -0.5f, {{0xC3, -0.5f}, {'a', -1.0f}}, false);
  EXPECT_EQ(json["bytes"], Json({195}));
  EXPECT_EQ(json["top_logprobs"][0]["bytes"], Json({195}));
  EXPECT_EQ(json["top_logprobs"][1], Json({{"token", "a"}, {"logprob", -1.0f}, {"bytes", {97}}}));
}

TEST(CharCounter, CountsWholeCharacters) {
  CharCounter count;
  count.add("a\xC3");
  EXPECT_EQ(count.count(), 1u) << "the second character is not whole";
  count.add("\xA9");
  EXPECT_EQ(count.count(), 2u);
  count.add("\xFF\xF0\x9F");
  EXPECT_EQ(count.count(), 3u) << "a byte that begins nothing is a U+FFFD";
  count.finish();
  EXPECT_EQ(count.count(), 4u);
}

TEST(TokenPlaces, AreCharactersBeforeEachToken) {
  const FakeEngine engine("");
  CharCounter count;
  const std::vector<int32_t> tokens = {FakeEngine::kControl, 0xC3, 0xA9, ' ', 0xC3, 0xA9, 'a'};
  EXPECT_EQ(token_places(engine, tokens,
                         "\xC3\xA9 \xC3\xA9"
                         "a",
                         count),
            (std::vector<size_t>{0, 0, 0, 1, 2, 2, 3}));
  EXPECT_EQ(count.count(), 4u);
}

TEST(TokenPlaces, ADroppedSpaceAndTheNameOfAControlTokenCount) {
  const FakeEngine engine("");
  CharCounter space, name;
  EXPECT_EQ(token_places(engine, {' ', 'a', 'b'}, "ab", space), (std::vector<size_t>{0, 0, 1}));
  EXPECT_EQ(space.count(), 2u);
  EXPECT_EQ(token_places(engine, {'a', FakeEngine::kControl, 'b'},
                         "a\x01"
                         "b",
                         name),
            (std::vector<size_t>{0, 1, 2}))
      << "the text has the name itself";
}

TEST(CompletionLogprobs, NamesDoNotCollide) {
  const FakeEngine engine("");
  CompletionLogprobs logprobs;
  logprobs.add(engine, 0xA9, -2, {{0xC3, -1}, {0xA9, -2}, {0x80, -3}}, 0, false);
  logprobs.add(engine, 'x', -9, {{'a', -1}}, 0, false);
  logprobs.add(engine, 'x', -9, {{'x' + 256, -1}, {'x' + 512, -2}}, 1, false);  // tokens of the same text
  const Json json = logprobs.take();
  EXPECT_EQ(json["tokens"], Json({"bytes:\\xa9", "x", "x"}));
  EXPECT_EQ(json["top_logprobs"][0], Json({{"bytes:\\xc3", -1}, {"bytes:\\xa9", -2}, {"bytes:\\x80", -3}}));
  EXPECT_EQ(json["top_logprobs"][1], Json({{"a", -1}, {"x", -9}})) << "the chosen token is always there";
  EXPECT_EQ(json["top_logprobs"][2], Json({{"token_id:376", -1}, {"token_id:632", -2}, {"x", -9}}));
}

TEST(PromptLogprobs, HaveTheShapeOfVllm) {
  const FakeEngine engine("");
  const std::vector<TokenScore> scores = {{-3, 7, {{'a', -1}, {'b', -2}}}};
  EXPECT_EQ(prompt_logprobs_json(engine, {'x', 'c'}, scores, 1),
            Json::array({nullptr,
                         {{"97", {{"logprob", -1}, {"rank", 1}, {"decoded_token", "a"}}},
                          {"99", {{"logprob", -3}, {"rank", 7}, {"decoded_token", "c"}}}}}));
}

constexpr char kCallThenMore[] =
    "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}\n</tool_call> and";

struct Answers {
  App app{{}};
  FakeEngine* engine;
  Answers() {
    auto made = std::make_unique<FakeEngine>(kCallThenMore, "<tool_call> {{ tools }}");
    engine = made.get();
    app.models().add(std::make_shared<ServedModel>("fake", std::move(made), 4));
    app.set_ready();
  }
  std::string post(const std::string& path, const Json& body) {
    HttpRequest call = make_request("POST", path, body.dump());
    const auto answer = app.handle(call);
    std::string text = body_of(*answer);
    EXPECT_EQ(answer->status, 200) << text;
    return text;
  }
};

// The call is whole and the text after it was cut: a client must not take the answer for a complete one.
TEST(FinishReason, AnAnswerThatWasCutAfterACallEndsByLengthInEveryApi) {
  Answers fake;
  fake.engine->reason = FinishReason::kLength;
  const Json schema = {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}};
  const Json function = {{"name", "weather"}, {"parameters", schema}};
  const Json tools = Json::array({{{"type", "function"}, {"function", function}}});
  const Json messages = Json::array({{{"role", "user"}, {"content", "Weather?"}}});
  const Json chat = {{"messages", messages}, {"tools", tools}};
  const Json whole = Json::parse(fake.post("/v1/chat/completions", chat));
  EXPECT_EQ(whole["choices"][0]["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  Json streamed = chat;
  streamed["stream"] = true;
  std::string finish;
  for (const Json& event : events_of(fake.post("/v1/chat/completions", streamed)))
    if (const Json& reason = event["choices"][0]["finish_reason"]; reason.is_string()) finish = reason;
  EXPECT_EQ(finish, "length");

  const Json anthropic = {{"model", "fake"},
                          {"max_tokens", 50},
                          {"messages", messages},
                          {"tools", Json::array({{{"name", "weather"}, {"input_schema", schema}}})}};
  EXPECT_EQ(Json::parse(fake.post("/v1/messages", anthropic))["stop_reason"], "max_tokens");

  Json flat = function;
  flat["type"] = "function";
  const Json response =
      Json::parse(fake.post("/v1/responses", {{"input", "Weather?"}, {"tools", Json::array({flat})}}));
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["output"].back()["status"], "incomplete");

  const Json ollama = Json::parse(
      fake.post("/api/chat", {{"model", "fake"}, {"messages", messages}, {"tools", tools}, {"stream", false}}));
  EXPECT_EQ(ollama["done_reason"], "length");
  EXPECT_EQ(ollama["eval_count"], whole["usage"]["completion_tokens"]);
  EXPECT_EQ(response["usage"]["output_tokens"], whole["usage"]["completion_tokens"]);
}

TEST(TokenIds, ChatsAndCompletionsReturnThemWholeAndStreamed) {
  Answers fake;
  fake.engine->piece_bytes = 1;
  const auto ids_of = [](std::string_view text) { return Json(std::vector<int>(text.begin(), text.end())); };
  const Json body = {{"prompt", "hi"}, {"return_token_ids", true}};
  const Json whole = Json::parse(fake.post("/v1/completions", body))["choices"][0];
  EXPECT_EQ(whole["prompt_token_ids"], ids_of("hi"));
  const Json chat = {{"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}, {"return_token_ids", true}};
  const Json answer = Json::parse(fake.post("/v1/chat/completions", chat));
  EXPECT_FALSE(answer["prompt_token_ids"].empty());
  EXPECT_EQ(answer["choices"][0]["token_ids"], whole["token_ids"]);
  for (const auto& [path, request] : {std::pair("/v1/completions", body), std::pair("/v1/chat/completions", chat)}) {
    Json streamed = request, ids = Json::array(), prompt;
    streamed["stream"] = true;
    for (const Json& event : events_of(fake.post(path, streamed))) {
      const Json& choice = event["choices"][0];
      for (const Json& id : choice["token_ids"]) ids.push_back(id);
      for (const Json& place : {event, choice})
        if (place.contains("prompt_token_ids")) prompt = place["prompt_token_ids"];
    }
    EXPECT_EQ(ids, whole["token_ids"]) << path;
    EXPECT_EQ(prompt, path == std::string("/v1/completions") ? whole["prompt_token_ids"] : answer["prompt_token_ids"]);
  }
}

}  // namespace
}  // namespace redline::server
