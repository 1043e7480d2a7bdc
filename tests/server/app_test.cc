// Routing, permissions and errors, without sockets; and generations of the bundled model.
#include "server/app.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "server/answers.h"
#include "server/generation.h"
#include "support/bundled.h"

namespace redline::server {
namespace {

TEST(App, UnknownPathsAndMethods) {
  App app({});
  auto call = make_request("GET", "/v1/modles");
  auto answer = app.handle(call);
  EXPECT_EQ(answer->status, 404);
  EXPECT_NE(error_of(*answer)["message"].get<std::string>().find("did you mean \"/v1/models\""), std::string::npos);
  call = make_request("GET", "/v1/completions");
  answer = app.handle(call);
  EXPECT_EQ(answer->status, 405);
  EXPECT_EQ(header_of(*answer, "Allow"), "POST");
  call = make_request("HEAD", "/v1/models");
  EXPECT_EQ(app.handle(call)->status, 200);
  // Not a conversation whose name has slashes.
  call = make_request("POST", "/v1/conversations/a/items/b", "{}");
  answer = app.handle(call);
  EXPECT_EQ(answer->status, 405);
  EXPECT_EQ(header_of(*answer, "Allow"), "GET, DELETE");
}

TEST(App, RefusesWorkWhileLoadingAndDraining) {
  App app({});
  auto call = make_request("POST", "/v1/completions", "{}");
  auto answer = app.handle(call);
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(header_of(*answer, "Retry-After"), "2");
  app.set_ready();
  app.draining();
  call = make_request("POST", "/v1/completions", "{}");
  answer = app.handle(call);
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(error_of(*answer)["type"], "unavailable_error");
  call = make_request("GET", "/health");
  answer = app.handle(call);
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(Json::parse(body_of(*answer))["status"], "draining");
}

TEST(App, AsksForAKey) {
  App app({});
  ASSERT_TRUE(app.keys().add("ann", "secret").ok());
  auto call = make_request("GET", "/v1/models");
  auto answer = app.handle(call);
  EXPECT_EQ(answer->status, 401);
  EXPECT_EQ(error_of(*answer)["code"], "invalid_api_key");
  call = make_request("GET", "/v1/models", "", {{"authorization", "Bearer secret"}});
  EXPECT_EQ(app.handle(call)->status, 200);
  EXPECT_EQ(call.client, "ann");
  call = make_request("GET", "/livez");
  EXPECT_EQ(app.handle(call)->status, 200);
}

TEST(App, PagesOfOtherOriginsMayNotCall) {
  App app({.origins = {"https://good.example"}});
  const auto status = [&](Headers headers) {
    HttpRequest call = make_request("GET", "/v1/models");
    call.headers = std::move(headers);
    return app.handle(call)->status;
  };
  EXPECT_EQ(status({{"host", "localhost:8080"}}), 200);
  EXPECT_EQ(status({{"host", "[::1]:8080"}}), 200);
  EXPECT_EQ(status({{"host", "127.0.0.1:8080"}, {"origin", "http://127.0.0.1:8080"}}), 200);
  EXPECT_EQ(status({{"host", "localhost:8080"}, {"origin", "https://good.example"}}), 200);
  EXPECT_EQ(status({{"host", "localhost:8080"}, {"origin", "https://evil.example"}}), 403);
  EXPECT_EQ(status({{"host", "localhost:8080"}, {"origin", "null"}}), 403);
  EXPECT_EQ(status({{"host", "good.example"}}), 200);  // a proxy in front
  // A name of another's that points to this machine.
  EXPECT_EQ(status({{"host", "evil.example:8080"}}), 403);
  EXPECT_EQ(status({{"host", "evil.example:8080"}, {"origin", "http://evil.example:8080"}}), 403);

  HttpRequest preflight = make_request("OPTIONS", "/v1/completions", "", {{"origin", "https://good.example"}});
  const auto answer = app.handle(preflight);
  EXPECT_EQ(answer->status, 204);
  EXPECT_EQ(header_of(*answer, "Access-Control-Allow-Origin"), "https://good.example");
}

TEST(App, EveryEndpointIsDescribed) {
  const Json document = openapi(true);
  std::set<std::string> seen;
  for (const Endpoint& e : endpoints()) {
    EXPECT_TRUE(seen.insert(e.method + " " + e.path).second) << e.path;
    EXPECT_FALSE(e.summary.empty() || e.tag.empty() || e.answers.empty()) << e.path;
    std::string method = e.method;
    for (char& c : method) c = static_cast<char>(c | 0x20);
    ASSERT_TRUE(document["paths"][e.path].contains(method)) << e.path;
  }
  // Each reference leads somewhere.
  const std::string text = document.dump();
  const std::string prefix = "#/components/schemas/";
  for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at + 1)) {
    const size_t begin = at + prefix.size();
    EXPECT_TRUE(document["components"]["schemas"].contains(text.substr(begin, text.find('"', begin) - begin)));
  }
}

/// The bundled model with its adapters.
class AppServed : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    app_ = new App({});
    auto engine = TextEngine::open(
        kTales, {.threads = 1, .dtype = ComputeType::kF32, .max_sequences = 8, .max_adapter_rank = 64});
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    auto model = std::make_shared<ServedModel>("tales", std::move(engine).value(), 4);
    for (const char* name : {"shout", "lower", "tolstoy", "shelley"})
      ASSERT_TRUE(model->load_adapter(name, kTales + "/adapters/" + name).ok());
    app_->models().add(std::move(model));
    app_->set_ready();
  }
  static void TearDownTestSuite() { delete std::exchange(app_, nullptr); }

  std::unique_ptr<Answer> post(const std::string& path, const Json& body) {
    HttpRequest call = make_request("POST", path, body.dump());
    return app_->handle(call);
  }
  Json completion(Json body) {
    const auto answer = post("/v1/completions", body);
    const std::string text = body_of(*answer);
    EXPECT_EQ(answer->status, 200) << text;
    return Json::parse(text);
  }
  static App* app_;
};
App* AppServed::app_ = nullptr;

// The reference texts of the bundled adapters, all in flight at once.
TEST_F(AppServed, AdaptersMixedInABatchGiveTheirReferences) {
  std::ifstream file(kTales + "/reference/adapters.json");
  const Json references = Json::parse(file);
  struct Case {
    std::unique_ptr<Answer> answer;
    std::string expected;
  };
  std::vector<Case> cases;
  const TextEngine& engine = app_->models().all()[0]->engine();
  for (const auto& [name, prompts] : references["adapters"].items()) {
    for (const Json& r : prompts) {
      const auto ids = r["greedy_ids"].get<std::vector<int32_t>>();
      Case c{post("/v1/completions", {{"model", "tales:" + name},
                                      {"prompt", r["prompt_ids"]},
                                      {"max_tokens", ids.size()},
                                      {"temperature", 0},
                                      {"ignore_eos", true}}),
             engine.decode(ids).value()};
      ASSERT_EQ(c.answer->status, 200) << body_of(*c.answer);
      cases.push_back(std::move(c));
    }
  }
  ASSERT_EQ(cases.size(), 8u);
  for (Case& c : cases) EXPECT_EQ(Json::parse(body_of(*c.answer))["choices"][0]["text"], c.expected);
}

// A model may write a word in other tokens than the tokenizer would: the next turn keeps them, and finds their state.
TEST_F(AppServed, AConversationGoesOnFromTheTokensThatWereWritten) {
  const TextEngine& engine = app_->models().all()[0]->engine();
  const std::vector<int32_t> letter = engine.encode("t", false, false).value();
  ASSERT_EQ(letter.size(), 1u);
  ASSERT_LT(engine.encode("tttttt", false, false)->size(), 6u);
  Json messages = Json::array({{{"role", "user"}, {"content", "Say t."}}});
  const auto answer = post("/v1/chat/completions", {{"messages", messages},
                                                    {"max_tokens", 6},
                                                    {"temperature", 0},
                                                    {"logit_bias", {{std::to_string(letter[0]), 100}}}});
  const Json first = Json::parse(body_of(*answer));
  ASSERT_EQ(first["choices"][0]["message"]["content"], "tttttt") << first;
  messages.push_back(first["choices"][0]["message"]);
  messages.push_back({{"role", "user"}, {"content", "More."}});
  const auto template_answer = post("/apply-template", {{"messages", messages}});
  const std::string text = Json::parse(body_of(*template_answer))["prompt"];
  const auto second_answer = post("/v1/chat/completions", {{"messages", messages}, {"max_tokens", 1}});
  const Json second = Json::parse(body_of(*second_answer));
  const int64_t prompt = first["usage"]["prompt_tokens"], as_tokenizer = std::ssize(*engine.encode(text, true, false));
  EXPECT_EQ(second["usage"]["prompt_tokens"], as_tokenizer + 6 - std::ssize(*engine.encode("tttttt", false, false)));
  // The last token was not read: it ended the text.
  EXPECT_EQ(second["usage"]["prompt_tokens_details"]["cached_tokens"], prompt + 5) << second;
  // Another salt is another conversation.
  const auto salted = post("/v1/chat/completions", {{"messages", messages}, {"max_tokens", 1}, {"cache_salt", "x"}});
  EXPECT_EQ(Json::parse(body_of(*salted))["usage"]["prompt_tokens"], as_tokenizer);
}

TEST_F(AppServed, AModelIsFoundByItsNames) {
  for (const char* name : {"tales", "tales:latest", "tales:shout", "shout"})
    EXPECT_EQ(completion({{"model", name}, {"max_tokens", 1}})["model"], name);
  const auto answer = post("/v1/completions", {{"model", "tale"}});
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(error_of(*answer)["code"], "model_not_found");
}

TEST_F(AppServed, ChoicesHaveTheirOwnSeeds) {
  const Json all = completion({{"prompt", "Once"}, {"n", 3}, {"seed", 5}, {"max_tokens", 20}, {"temperature", 1}});
  ASSERT_EQ(all["choices"].size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const Json one = completion({{"prompt", "Once"}, {"seed", 5 + i}, {"max_tokens", 20}, {"temperature", 1}});
    EXPECT_EQ(all["choices"][static_cast<size_t>(i)]["text"], one["choices"][0]["text"]);
  }
  EXPECT_EQ(all["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(all["usage"]["completion_tokens"], 60);
}

TEST_F(AppServed, TheQueueIsLimited) {
  std::vector<std::unique_ptr<Answer>> running;
  for (int i = 0; i < 3; ++i)
    running.push_back(
        post("/v1/completions", {{"prompt", "Once"}, {"n", 4}, {"max_tokens", 200}, {"ignore_eos", true}}));
  for (const auto& answer : running) EXPECT_EQ(answer->status, 200);
  auto refused = post("/v1/completions", {{"prompt", "Once"}});
  EXPECT_EQ(refused->status, 429);
  EXPECT_FALSE(header_of(*refused, "Retry-After").empty());
  EXPECT_EQ(error_of(*refused)["type"], "rate_limit_error");
  running.clear();  // cancels them: their places are free at once
  EXPECT_EQ(post("/v1/completions", {{"prompt", "Once"}, {"max_tokens", 1}})->status, 200);
  refused = post("/v1/completions", {{"prompt", "Once"}, {"n", 13}});
  EXPECT_EQ(refused->status, 400);
  EXPECT_EQ(error_of(*refused)["param"], "n");
}

TEST_F(AppServed, APromptThatIsTooLongNamesBothNumbers) {
  const std::vector<int> prompt(1024, 5);
  const auto answer = post("/v1/completions", {{"prompt", prompt}});
  EXPECT_EQ(answer->status, 400);
  const Json error = error_of(*answer);
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_NE(error["message"].get<std::string>().find("1024 tokens; the context holds 1024"), std::string::npos);
}

TEST_F(AppServed, AStopStringIsNamed) {
  const Json json =
      completion({{"prompt", "Once upon a time"}, {"temperature", 0}, {"stop", {"xyz", " girl"}}, {"max_tokens", 50}});
  EXPECT_EQ(json["choices"][0]["text"], ", there was a little");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["choices"][0]["stop_reason"], " girl");
}

// `echo` scores the prompt as the engine's own logits do.
TEST_F(AppServed, EchoScoresThePrompt) {
  const Json json = completion({{"prompt", "Once upon a time"}, {"echo", true}, {"logprobs", 2}, {"max_tokens", 0}});
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["text"], "Once upon a time");
  EXPECT_EQ(choice["logprobs"]["tokens"], Json({"<|endoftext|>", "Once", " upon", " a", " time"}));
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json({0, 0, 4, 9, 11}));
  EXPECT_TRUE(choice["logprobs"]["token_logprobs"][0].is_null());
  EXPECT_TRUE(choice["logprobs"]["top_logprobs"][1].contains("Once")) << "the token itself is always there";
  const Json more = completion({{"prompt", "Once"}, {"temperature", 0}, {"logprobs", 1}, {"max_tokens", 3}});
  EXPECT_EQ(more["choices"][0]["logprobs"]["tokens"], Json({" upon", " a", " time"}));
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(more["choices"][0]["logprobs"]["token_logprobs"][i].get<double>(),
                choice["logprobs"]["token_logprobs"][i + 2].get<double>(), 1e-3);
}

// The expected places and bytes follow from the vocabulary: "é" is the two tokens of bytes 195 and 169.
TEST_F(AppServed, LogprobsHaveBytesAndPlacesOfTokens) {
  const Json echoed = completion({{"prompt", "é é a"}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 1}});
  EXPECT_EQ(echoed["choices"][0]["logprobs"]["text_offset"], Json({0, 0, 0, 1, 2, 2, 3, 5}));
  EXPECT_EQ(echoed["choices"][0]["logprobs"]["tokens"][1], "bytes:\\xc3");
  const Json scored = completion({{"prompt", "Once upon"}, {"prompt_logprobs", 2}, {"max_tokens", 1}})["choices"][0];
  ASSERT_EQ(scored["prompt_logprobs"].size(), 3u);
  EXPECT_TRUE(scored["prompt_logprobs"][0].is_null());
  const Json as_ids = completion({{"prompt", "Once upon"},
                                  {"return_token_ids", true},
                                  {"return_tokens_as_token_ids", true},
                                  {"logprobs", 0},
                                  {"max_tokens", 1}})["choices"][0];
  for (size_t i = 1; i < 3; ++i) {
    const std::string id = std::to_string(as_ids["prompt_token_ids"][i].get<int>());
    EXPECT_TRUE(scored["prompt_logprobs"][i].contains(id)) << "the token of the prompt is always there";
    EXPECT_GE(scored["prompt_logprobs"][i].size(), 2u);
  }
  EXPECT_EQ(as_ids["logprobs"]["tokens"][0], "token_id:" + std::to_string(as_ids["token_ids"][0].get<int>()));
}

TEST_F(AppServed, BeamSearchFindsWhatTheEngineFinds) {
  TextEngine& engine = app_->models().all()[0]->engine();
  BeamSearchRequest search;
  search.prompt = engine.encode("Once upon a time").value();
  search.beam_width = 3;
  search.max_tokens = 12;
  search.length_penalty = 0.5;
  const std::vector<Beam> beams = beam_search(engine, search).value();
  const Json body = {
      {"prompt", "Once upon a time"}, {"use_beam_search", true}, {"n", 3}, {"max_tokens", 12}, {"length_penalty", 0.5}};
  const Json whole = completion(body);
  ASSERT_EQ(whole["choices"].size(), 3u);
  int64_t tokens = 0;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(whole["choices"][i]["text"], beams[i].text);
    EXPECT_EQ(whole["choices"][i]["index"], i);
    EXPECT_EQ(whole["choices"][i]["finish_reason"], beams[i].reason == FinishReason::kStop ? "stop" : "length");
    tokens += std::ssize(beams[i].tokens);
  }
  EXPECT_EQ(whole["usage"]["prompt_tokens"], search.prompt.size());
  EXPECT_EQ(whole["usage"]["completion_tokens"], tokens);
  // A stream has the same texts, which come when all are known.
  Json streamed = body;
  streamed["stream"] = true;
  const auto stream = post("/v1/completions", streamed);
  ASSERT_EQ(stream->status, 200);
  std::map<int, std::string> texts;
  for (const Json& event : events_of(body_of(*stream)))
    for (const Json& choice : event["choices"]) texts[choice["index"]] += choice["text"].get<std::string>();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(texts[i], beams[static_cast<size_t>(i)].text);
  // Several prompts; an adapter; no tokens.
  const Json two = completion({{"prompt", {"Once", "One day"}},
                               {"use_beam_search", true},
                               {"n", 2},
                               {"max_tokens", 4},
                               {"model", "tales:shout"}});
  ASSERT_EQ(two["choices"].size(), 4u);
  BeamSearchRequest shouted;
  shouted.prompt = engine.encode("One day").value();
  shouted.beam_width = 2;
  shouted.max_tokens = 4;
  shouted.adapters = {{"shout", 1.0}};
  EXPECT_EQ(two["choices"][3]["text"], beam_search(engine, shouted).value()[1].text);
  EXPECT_EQ(
      completion({{"prompt", "Once"}, {"use_beam_search", true}, {"n", 2}, {"max_tokens", 0}})["choices"][1]["text"],
      "");
  EXPECT_EQ(completion({{"use_beam_search", true}, {"n", 2}, {"max_tokens", 3}})["choices"].size(), 2u);
}

TEST_F(AppServed, BeamSearchNamesWhatItCannotDo) {
  const auto refused = [&](Json with, const char* param) {
    with.merge_patch({{"prompt", "Once"}, {"use_beam_search", true}, {"max_tokens", 4}});
    const auto answer = post("/v1/completions", with);
    EXPECT_EQ(answer->status, 400) << with;
    EXPECT_EQ(error_of(*answer)["param"], param) << with;
  };
  refused({{"stop", "a"}}, "stop");
  refused({{"logprobs", 1}}, "logprobs");
  refused({{"n", 1}, {"best_of", 2}}, "best_of");
  refused({{"guided_regex", "a+"}}, "guided_regex");
  refused({{"n", 100}}, "n");
  refused({{"n", 0}}, "n");
  refused({{"length_penalty", "x"}}, "length_penalty");
  refused({{"length_penalty", 1000}}, "length_penalty");
  HttpRequest call = make_request(
      "POST", "/v1/completions",
      Json({{"prompt", "Once"}, {"use_beam_search", true}, {"temperature", 0.5}, {"max_tokens", 2}}).dump());
  const auto sampled = app_->handle(call);
  EXPECT_EQ(sampled->status, 200);
  EXPECT_EQ(header_of(*sampled, "X-Redline-Ignored"), "temperature");
  body_of(*sampled);
  call = make_request("POST", "/v1/completions",
                      Json({{"prompt", "Once"}, {"length_penalty", 2}, {"max_tokens", 2}}).dump());
  const auto unsearched = app_->handle(call);
  EXPECT_EQ(unsearched->status, 400);
  EXPECT_EQ(error_of(*unsearched)["param"], "length_penalty");
}

TEST_F(AppServed, ASearchEndsWithItsClientAndWithItsTime) {
  const auto model = app_->models().all()[0];
  const Json body = {
      {"prompt", "Once"}, {"use_beam_search", true}, {"n", 4}, {"max_tokens", 1000}, {"ignore_eos", true}};
  {
    const auto gone = post("/v1/completions", body);
    ASSERT_EQ(gone->status, 200);
  }
  EXPECT_EQ(model->in_flight(), 0);
  Json timed = body;
  timed["timeout"] = 0.05;
  const Json late = completion(timed);
  EXPECT_EQ(late["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(late["choices"][0]["stop_reason"], "timeout");
  const TextEngine& engine = model->engine();
  for (int i = 0; i < 6000 && engine.stats().cache_pages_used > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(engine.stats().cache_pages_used, 0);
}

TEST_F(AppServed, AdaptersComeAndGo) {
  EXPECT_EQ(post("/v1/unload_lora_adapter", {{"lora_name", "shout"}})->status, 200);
  EXPECT_EQ(post("/v1/completions", {{"model", "tales:shout"}})->status, 404);
  EXPECT_EQ(post("/v1/load_lora_adapter", {{"lora_name", "shout"}, {"lora_path", "/nowhere"}})->status, 404);
  EXPECT_EQ(post("/v1/load_lora_adapter", {{"lora_name", "lower"}, {"lora_path", kTales + "/adapters/lower"}})->status,
            400);
  EXPECT_EQ(post("/v1/load_lora_adapter", {{"lora_name", "shout"}, {"lora_path", kTales + "/adapters/shout"}})->status,
            200);
  const Json by_name = completion({{"model", "tales:shout"}, {"prompt", "Once"}, {"temperature", 0}});

  HttpRequest list = make_request("GET", "/lora-adapters");
  const Json adapters = Json::parse(body_of(*app_->handle(list)));
  ASSERT_EQ(adapters.size(), 4u);
  const int64_t id = adapters[3]["id"];
  EXPECT_EQ(adapters[3]["name"], "shout");
  const Json by_id = completion({{"prompt", "Once"}, {"temperature", 0}, {"lora", {{{"id", id}, {"scale", 1}}}}});
  EXPECT_EQ(by_id["choices"][0]["text"], by_name["choices"][0]["text"]);
  const Json scales = Json::array({{{"id", id}, {"scale", 1}}});
  EXPECT_EQ(post("/lora-adapters", scales)->status, 200);
  EXPECT_EQ(completion({{"prompt", "Once"}, {"temperature", 0}})["choices"][0]["text"], by_name["choices"][0]["text"]);
  EXPECT_EQ(post("/lora-adapters", Json::array())->status, 200);
  EXPECT_NE(completion({{"prompt", "Once"}, {"temperature", 0}})["choices"][0]["text"], by_name["choices"][0]["text"]);
}

TEST_F(AppServed, AStreamSaysTheSame) {
  const Json body = {{"prompt", {"Once upon", "One day"}},
                     {"n", 2},
                     {"seed", 3},
                     {"max_tokens", 30},
                     {"logprobs", 0},
                     {"echo", true},
                     {"stop", {"."}}};
  const Json whole = completion(body);
  Json streaming = body;
  streaming["stream"] = true;
  streaming["stream_options"] = {{"include_usage", true}};
  const auto answer = post("/v1/completions", streaming);
  std::string text = body_of(*answer);
  std::vector<std::string> texts(4), finishes(4);
  std::vector<Json> tokens(4, Json::array());
  Json usage;
  for (size_t at = 0, end = 0; (end = text.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string data = text.substr(at + 6, end - at - 6);
    if (data == "[DONE]") break;
    const Json event = Json::parse(data);
    if (!event["usage"].is_null()) usage = event["usage"];
    for (const Json& choice : event["choices"]) {
      const size_t i = choice["index"];
      texts[i] += choice["text"];
      for (const Json& token : choice["logprobs"]["tokens"]) tokens[i].push_back(token);
      if (!choice["finish_reason"].is_null()) finishes[i] = choice["finish_reason"];
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(texts[i], whole["choices"][i]["text"]);
    EXPECT_EQ(finishes[i], whole["choices"][i]["finish_reason"]);
    EXPECT_EQ(tokens[i], whole["choices"][i]["logprobs"]["tokens"]);
  }
  EXPECT_EQ(usage["completion_tokens"], whole["usage"]["completion_tokens"]);
}

TEST_F(AppServed, TokensAndBack) {
  const auto ids = Json::parse(body_of(*post("/tokenize", {{"prompt", "Once upon"}, {"return_token_strs", true}})));
  EXPECT_EQ(ids["count"], 3);
  EXPECT_EQ(ids["token_strs"], Json({"<|endoftext|>", "Once", " upon"}));
  const auto llama = Json::parse(body_of(*post("/tokenize", {{"content", "Once upon"}, {"with_pieces", true}})));
  EXPECT_EQ(llama["tokens"].size(), 2u);
  EXPECT_EQ(llama["tokens"][1]["piece"], " upon");
  const auto text = Json::parse(body_of(*post("/detokenize", {{"tokens", ids["tokens"]}})));
  EXPECT_EQ(text["prompt"], "<|endoftext|>Once upon");
  const auto bad = post("/detokenize", {{"tokens", {1, 4096}}});
  EXPECT_EQ(bad->status, 400);
  EXPECT_EQ(error_of(*bad)["param"], "tokens[1]");
}

TEST(App, ServesThePage) {
  App app({});
  ASSERT_TRUE(app.keys().add("ann", "secret").ok());  // the page itself asks for the key
  auto call = make_request("GET", "/");
  auto answer = app.handle(call);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->content_type, "text/html; charset=utf-8");
  EXPECT_NE(header_of(*answer, "Content-Security-Policy").find("default-src 'none'"), std::string::npos);
  const std::string etag = header_of(*answer, "ETag"), page = body_of(*answer);
  EXPECT_NE(page.find("app.js"), std::string::npos);
  call = make_request("GET", "/", "", {{"if-none-match", etag}});
  answer = app.handle(call);
  EXPECT_EQ(answer->status, 304);
  EXPECT_EQ(body_of(*answer), "");
  call = make_request("GET", "/app.js");
  answer = app.handle(call);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(header_of(*answer, "Content-Encoding"), "gzip");
  call = make_request("GET", "/app2.js");
  EXPECT_EQ(app.handle(call)->status, 404);
}

}  // namespace
}  // namespace redline::server
