// The table of the fields that clients send: what each of them does, at every endpoint, and that the schemas agree.
// over 600 lines: one test for each API and each kind of field of one table.
#include "server/known_fields.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "server/answers.h"
#include "server/chat.h"
#include "server/fake_engine.h"

namespace redline::server {
namespace {

using testing::FakeEngine;

constexpr char kThinkingTemplate[] = "<tool_call> <think> {{ tools }} {{ documents }}";

/// A server with an engine that always says the same.
struct FieldServer {
  App app{{}};
  FakeEngine* engine;
  std::string ignored;  ///< X-Redline-Ignored of the last answer
  explicit FieldServer(std::string script = "Yes.") {
    auto made = std::make_unique<FakeEngine>(std::move(script), kThinkingTemplate);
    engine = made.get();
    app.models().add(std::make_shared<ServedModel>("fake", std::move(made), 4));
    app.set_ready();
  }
  Json post(const std::string& path, const Json& body, int status = 200) {
    HttpRequest call = make_request("POST", path, body.dump());
    const auto answer = app.handle(call);
    const std::string text = body_of(*answer);
    EXPECT_EQ(answer->status, status) << path << " " << body.dump() << "\n" << text;
    ignored = header_of(*answer, "X-Redline-Ignored");
    return Json::parse(text, nullptr, false);
  }
  Json chat(Json with, int status = 200) {
    if (!with.contains("messages")) with["messages"] = {{{"role", "user"}, {"content", "Yes?"}}};
    return post("/v1/chat/completions", with, status);
  }
  std::string param_of(const Json& with) { return chat(with, 400)["error"].value("param", Json()).dump(); }
  /// The prompt ends with the variables of the template.
  std::string prompt() const { return {engine->last.prompt.tokens().begin(), engine->last.prompt.tokens().end()}; }
  bool prompt_has(const std::string& text) const { return prompt().find(text) != std::string::npos; }
};

std::set<std::string> schema_names() {
  std::set<std::string> names;
  std::vector<const Schema*> all;
  for (const Endpoint& endpoint : endpoints())
    if (endpoint.rules.request) all.push_back(endpoint.rules.request);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!names.insert(all[i]->name).second) continue;
    for (const Field& field : all[i]->fields) {
      if (field.rules.object) all.push_back(field.rules.object);
      if (field.rules.items && field.rules.items->rules.object) all.push_back(field.rules.items->rules.object);
    }
  }
  return names;
}

const Schema* request_schema_of(const std::string& path) {
  for (const Endpoint& endpoint : endpoints())
    if (endpoint.path == path && endpoint.method == "POST") return endpoint.rules.request;
  return nullptr;
}

TEST(KnownFields, RowsAgreeWithTheSchemas) {
  const std::pair<const char*, unsigned> kPaths[] = {{"/v1/chat/completions", kInChat},
                                                     {"/v1/completions", kInCompletion},
                                                     {"/v1/responses", kInResponse},
                                                     {"/v1/messages", kInAnthropic},
                                                     {"/v1/embeddings", kInEmbedding}};
  for (const auto& [path, place] : kPaths) {
    const Schema* schema = request_schema_of(path);
    ASSERT_NE(schema, nullptr) << path;
    EXPECT_EQ(places_of(schema->name), place) << path;
    std::set<std::string, std::less<>> fields, ignored;
    for (const Field& field : schema->fields) (field.rules.is_ignored ? ignored : fields).insert(field.name);
    for (const std::string_view name : known_names(schema->name)) {
      const KnownField* row = find_known_field(schema->name, name);
      ASSERT_NE(row, nullptr) << name;
      if (row->use == FieldUse::kHonoured) {
        EXPECT_TRUE(fields.contains(name)) << path << ": " << name << " is said to be honoured";
      } else if (row->use == FieldUse::kIgnored && ignored.contains(name)) {
        continue;  // the schema says the same
      } else {
        EXPECT_FALSE(fields.contains(name)) << path << ": " << name << " has an effect, and its row says otherwise";
      }
      if (row->use == FieldUse::kMapped && !row->convert) {
        EXPECT_TRUE(fields.contains(row->note)) << path << ": " << name << " becomes " << row->note;
      }
    }
  }
  // A schema that the table names exists.
  const std::set<std::string> names = schema_names();
  for (const char* name : {"ChatRequest", "ApplyTemplateRequest", "CompletionRequest", "ResponseRequest",
                           "AnthropicRequest", "AnthropicCountRequest", "OllamaChatRequest", "OllamaGenerateRequest",
                           "OllamaOptions", "EmbeddingRequest", "OllamaEmbedRequest", "OllamaEmbeddingsRequest",
                           "RerankRequest", "ChatMessage", "OllamaMessage", "ContentPart", "Tool", "ToolFunction"}) {
    EXPECT_NE(places_of(name), 0U) << name;
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(KnownFields, ANameOccursOnceInAPlace) {
  for (const char* schema : {"ChatRequest", "CompletionRequest", "ResponseRequest", "AnthropicRequest", "OllamaOptions",
                             "EmbeddingRequest", "ChatMessage", "Tool"}) {
    std::set<std::string_view> names;
    for (const std::string_view name : known_names(schema)) EXPECT_TRUE(names.insert(name).second) << schema << name;
  }
}

TEST(KnownFields, ATypingErrorIsOneEditInFourCharacters) {
  const std::vector<std::string_view> known = {"n", "stop", "seed", "model", "max_tokens", "temperature"};
  const auto meant = [&](std::string_view name) { return misspelled_name(name, known); };
  EXPECT_EQ(meant("max_token"), "max_tokens");
  EXPECT_EQ(meant("maxTokens"), "max_tokens") << "the case does not count";
  EXPECT_EQ(meant("tempratur"), "temperature");
  EXPECT_EQ(meant("Temperature"), "temperature");
  EXPECT_EQ(meant("stpo"), "stop") << "a transposition is one edit";
  EXPECT_EQ(meant("modle"), "model");
  EXPECT_EQ(meant("id"), "") << "a short name is not n";
  EXPECT_EQ(meant("k"), "");
  EXPECT_EQ(meant("role"), "") << "two edits from model";
  EXPECT_EQ(meant("max_batch"), "");
  EXPECT_EQ(meant(std::string(65, 'a')), "");
}

// Case 11: each alone was status 400.
TEST(KnownFields, WhatOtherServersHaveIsIgnoredAndNamed) {
  FieldServer server;
  for (const char* name : {"cache_prompt",
                           "id_slot",
                           "n_keep",
                           "timings_per_token",
                           "return_progress",
                           "add_special_tokens",
                           "spaces_between_special_tokens",
                           "guided_decoding_backend",
                           "request_id",
                           "stream_reasoning",
                           "provider",
                           "transforms",
                           "num_ctx",
                           "draft_model",
                           "safe_prompt",
                           "store",
                           "metadata",
                           "verbosity",
                           "prediction",
                           "skip_special_tokens",
                           "top_a",
                           "never_heard_of"}) {
    for (const Json& value : {Json(true), Json(1), Json("x"), Json::array({1}), Json{{"a", 1}}}) {
      server.chat({{name, value}});
      EXPECT_EQ(server.ignored, name) << value;
    }
    server.chat({{name, nullptr}});
    EXPECT_EQ(server.ignored, "") << name << ": null is no field";
  }
  for (const char* path : {"/v1/completions", "/v1/responses", "/v1/messages", "/api/chat", "/api/generate"}) {
    const bool is_chat =
        std::string_view(path).find("chat") != std::string_view::npos || path == std::string("/v1/messages");
    Json body = {{"model", "fake"}, {"never_heard_of", 1}, {"request_id", "a"}, {"max_tokens", 9}};
    if (is_chat) body["messages"] = {{{"role", "user"}, {"content", "Yes?"}}};
    else body[path == std::string("/v1/responses") ? "input" : "prompt"] = "Yes?";
    server.post(path, body);
    EXPECT_NE(server.ignored.find("never_heard_of"), std::string::npos) << path;
    EXPECT_NE(server.ignored.find("request_id"), std::string::npos) << path;
  }
}

TEST(KnownFields, OfMessagesAndTools) {
  FieldServer server;
  const Json user = {{"role", "user"}, {"content", "Yes?"}, {"cache_control", {{"type", "ephemeral"}}}};
  const Json assistant = {{"role", "assistant"},
                          {"content", "Yes."},
                          {"id", "msg_1"},
                          {"provider_specific_fields", Json::object()},
                          {"extra_content", Json::object()},
                          {"images", Json::array()},
                          {"annotations", Json::array()},
                          {"reasoning_details", {{{"type", "reasoning.text"}, {"text", "Hm."}}}}};
  const Json tool = {{"type", "function"},
                     {"function", {{"name", "f"}, {"strict", true}, {"cache_control", nullptr}}},
                     {"cache_control", {{"type", "ephemeral"}}}};
  server.chat({{"messages", {user, assistant, user}}, {"tools", {tool}}});
  EXPECT_TRUE(server.prompt_has("\"reasoning_content\":\"Hm.\""));
  EXPECT_FALSE(server.prompt_has("cache_control\":{}"));
  for (const char* name :
       {"messages[].cache_control", "messages[].id", "messages[].provider_specific_fields", "messages[].extra_content",
        "messages[].annotations", "tools[].cache_control", "tools[].function.strict"})
    EXPECT_NE(server.ignored.find(name), std::string::npos) << name << " in " << server.ignored;
  // Under every name, and as a part.
  const std::pair<const char*, Json> kThoughts[] = {
      {"reasoning", "Hm."},
      {"reasoning_content", "Hm."},
      {"thinking", "Hm."},
      {"thinking_blocks", {{{"type", "thinking"}, {"thinking", "Hm."}, {"signature", "x"}}}},
      {"content", {{{"type", "thinking"}, {"thinking", "Hm."}}, {{"type", "text"}, {"text", "Yes."}}}},
      {"content", {{{"type", "thinking"}, {"thinking", {{{"type", "text"}, {"text", "Hm."}}}}}}}};
  for (const auto& [name, value] : kThoughts) {
    Json message = {{"role", "assistant"}, {"content", "a"}};
    message[name] = value;
    server.chat({{"messages", {user, message, user}}});
    EXPECT_TRUE(server.prompt_has("\"reasoning_content\":\"Hm.\"")) << server.prompt();
  }
  server.chat(
      {{"messages", {user, {{"role", "assistant"}, {"content", {{{"type", "refusal"}, {"refusal", "No!"}}}}}}}});
  EXPECT_TRUE(server.prompt_has("\"content\":\"No!\"")) << server.prompt();
  server.chat({{"messages", {user, {{"role", "assistant"}, {"function_call", {{"name", "f"}, {"arguments", "{}"}}}}}}});
  EXPECT_TRUE(server.prompt_has("\"tool_calls\":[{\"id\":\"call_2\"")) << server.prompt();
  EXPECT_EQ(server.param_of({{"messages", {{{"role", "user"}, {"contents", "a"}}}}}), "\"messages[0].contents\"");
}

TEST(KnownFields, MappedOnesHaveTheirEffect) {
  FieldServer server;
  const auto last = [&](const Json& with) {
    server.chat(with);
    EXPECT_EQ(server.ignored, "") << with;
    return server.engine->last;
  };
  EXPECT_FLOAT_EQ(last({{"repeat_penalty", 1.5}}).sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(last({{"n_predict", 7}}).max_tokens, 7);
  EXPECT_EQ(last({{"num_predict", 7}}).max_tokens, 7);
  EXPECT_EQ(last({{"max_new_tokens", 7}}).max_tokens, 7);
  EXPECT_EQ(last({{"max_tokens", -1}}).max_tokens, 1000) << "the context";
  EXPECT_EQ(last({{"max_completion_tokens", -1}}).max_tokens, 1000);
  EXPECT_EQ(last({{"max_tokens", 1000000000}}).max_tokens, 1000);
  EXPECT_EQ(last({{"random_seed", 7}}).sampling.seed, 7U);
  EXPECT_EQ(last({{"do_sample", false}, {"temperature", 0.7}}).sampling.temperature, 0);
  EXPECT_FLOAT_EQ(last({{"do_sample", true}, {"temperature", 0.7}}).sampling.temperature, 0.7F);
  EXPECT_EQ(last({{"stop", ""}}).stop, std::vector<std::string>{});
  EXPECT_EQ(last({{"stop", {""}}}).stop, std::vector<std::string>{});
  EXPECT_EQ(last({{"stop", {"", "a"}}}).stop, std::vector<std::string>{"a"});
  EXPECT_EQ(last({{"stop_sequences", {"a"}}}).stop, std::vector<std::string>{"a"});
  EXPECT_EQ(last({{"n_probs", 3}}).num_logprobs, 3);
  EXPECT_EQ(last({{"t_max_predict_ms", 1500}}).timeout_ms, 1500);
  EXPECT_EQ(last({{"regex", "a+"}}).constraint.text, "a+");
  EXPECT_EQ(last({{"format", "json"}}).constraint.text, R"({"type":"object"})");
  EXPECT_EQ(last({{"format", {{"type", "string"}}}}).constraint.text, R"({"type":"string"})");
  EXPECT_EQ(last({{"format", ""}}).constraint.kind, OutputConstraint::Kind::kNone);
  EXPECT_EQ(last({{"options", {{"num_predict", 5}, {"temperature", 0.5}, {"repeat_penalty", 2}}}}).max_tokens, 5);
  EXPECT_FLOAT_EQ(server.engine->last.sampling.temperature, 0.5F);
  EXPECT_FLOAT_EQ(server.engine->last.sampling.repetition_penalty, 2);
  EXPECT_EQ(last({{"extra_body", {{"top_k", 3}, {"options", {{"n_predict", 6}}}}}}).max_tokens, 6);
  EXPECT_EQ(server.engine->last.sampling.top_k, 3);
  server.chat({{"options", {{"num_ctx", 5}, {"main_gpu", 0}}}});
  EXPECT_EQ(server.ignored, "options.num_ctx, options.main_gpu");
  // Two names with two values: one holds, and the other is named.
  server.chat({{"n_predict", 7}, {"max_tokens", 8}});
  EXPECT_EQ(server.engine->last.max_tokens, 8);
  EXPECT_EQ(server.ignored, "n_predict");
  server.chat({{"n_predict", 8}, {"max_tokens", 8}});
  EXPECT_EQ(server.ignored, "");
  server.post("/v1/responses", {{"input", "Yes?"}, {"max_tokens", 6}, {"repeat_penalty", 2}});
  EXPECT_EQ(server.engine->last.max_tokens, 6);
  server.post("/v1/responses", {{"input", "Yes?"}, {"max_output_tokens", -1}});
  EXPECT_EQ(server.engine->last.max_tokens, 1000);
  server.post("/v1/completions", {{"prompt", "Yes?"}, {"n_predict", -1}, {"n_probs", 2}});
  EXPECT_EQ(server.engine->last.max_tokens, 1000);
  EXPECT_EQ(server.engine->last.num_logprobs, 2);
  server.post("/v1/completions", {{"prompt", "Yes?"}, {"skip_special_tokens", false}});
  EXPECT_TRUE(server.engine->last.special);
  server.post("/v1/completions", {{"prompt", "Yes?"}, {"skip_special_tokens", true}});
  EXPECT_FALSE(server.engine->last.special);
}

TEST(KnownFields, ErrorsNameWhatTheClientWrote) {
  FieldServer server;
  EXPECT_EQ(server.param_of({{"repeat_penalty", "x"}}), "\"repeat_penalty\"");
  EXPECT_EQ(server.param_of({{"options", {{"temperature", "x"}}}}), "\"options.temperature\"");
  EXPECT_EQ(server.param_of({{"options", {{"temperatur", 1}}}}), "\"options.temperatur\"");
  EXPECT_EQ(server.param_of({{"options", 3}}), "\"options\"");
  EXPECT_EQ(server.param_of({{"thinking", 3}}), "\"thinking\"");
  EXPECT_EQ(server.param_of({{"maxtokens", 3}}), "\"maxtokens\"");
  EXPECT_EQ(server.param_of({{"length_penalty", 2}}), "\"length_penalty\"");
  server.chat({{"length_penalty", 1}});
  const Json error = server.chat({{"cache_promt", true}}, 400)["error"];
  EXPECT_EQ(error["message"], "unknown field cache_promt; did you mean \"cache_prompt\"?");
  EXPECT_EQ(error["code"], "unknown_parameter");
}

TEST(KnownFields, RefusedIsWhatChangesTheAnswer) {
  FieldServer server;
  const std::pair<const char*, Json> kRefused[] = {
      {"functions", {{{"name", "f"}}}}, {"function_call", "auto"},  {"chat_template", "x"},
      {"logits_processors", {"a"}},     {"allowed_token_ids", {1}}, {"echo", true},
      {"truncate_prompt_tokens", 9},    {"ebnf", "root ::= a"},     {"suffix", "x"}};
  for (const auto& [name, value] : kRefused) {
    EXPECT_EQ(server.param_of({{name, value}}), Json(name).dump());
    for (const Json& nothing : {Json(nullptr), Json(false), Json(""), Json("none"), Json::array(), Json::object()}) {
      server.chat({{name, nothing}});
      EXPECT_EQ(server.ignored, "") << name;
    }
  }
  EXPECT_EQ(server.post("/v1/completions", {{"messages", {{{"role", "user"}}}}}, 400)["error"]["param"], "messages");
}

// Case 12, and the other names of the switch.
TEST(KnownFields, ThinkingIsTurnedOffAndOnUnderAllNames) {
  FieldServer server;  // its prompt ends with ChatInput::thinking
  const auto thinking = [&] { return server.prompt().substr(server.prompt().find_last_of("]}") + 1); };
  const std::pair<Json, const char*> kCases[] = {{{{"reasoning_effort", "none"}}, "none"},
                                                 {{{"enable_thinking", false}}, "off"},
                                                 {{{"think", false}}, "off"},
                                                 {{{"thinking", {{"type", "disabled"}}}}, "off"},
                                                 {{{"thinking", false}}, "off"},
                                                 {{{"reasoning", {{"enabled", false}}}}, "off"},
                                                 {{{"reasoning", {{"effort", "none"}}}}, "none"},
                                                 {{{"thinking_budget", 0}}, "off"},
                                                 {{{"reasoning_effort", "max"}}, "max"},
                                                 {{{"enable_thinking", true}}, "on"},
                                                 {{{"think", "high"}}, "high"},
                                                 {{{"thinking", {{"type", "enabled"}}}}, "on"},
                                                 {{{"reasoning", {{"effort", "low"}, {"enabled", true}}}}, "low"},
                                                 {{{"reasoning_effort", "auto"}}, ""},
                                                 {{{"thinking", {{"type", "auto"}}}}, ""},
                                                 {Json::object(), ""}};
  for (const auto& [with, expected] : kCases) {
    server.chat(with);
    EXPECT_EQ(thinking(), expected) << with << server.prompt();
    EXPECT_EQ(server.ignored, "") << with;
  }
  server.chat({{"chat_template_kwargs", {{"enable_thinking", true}}}, {"reasoning_effort", "none"}});
  EXPECT_TRUE(server.prompt_has("\"enable_thinking\":true")) << "the template's own variables";
  server.chat({{"reasoning", {{"effort", "high"}, {"max_tokens", 100}}}});
  EXPECT_EQ(server.ignored, "reasoning.max_tokens");
  server.post("/v1/responses", {{"input", "Yes?"}, {"reasoning", {{"effort", "none"}}}});
  EXPECT_EQ(thinking(), "none");
  server.post("/v1/responses", {{"input", "Yes?"}, {"enable_thinking", false}});
  EXPECT_EQ(thinking(), "off");
  const Json messages = Json::array({{{"role", "user"}, {"content", "Yes?"}}});
  server.post("/v1/messages",
              {{"model", "fake"}, {"max_tokens", 9}, {"messages", messages}, {"thinking", {{"type", "disabled"}}}});
  EXPECT_EQ(thinking(), "off");
  server.post("/api/chat", {{"model", "fake"}, {"messages", messages}, {"think", false}});
  EXPECT_EQ(thinking(), "off");
}

TEST(KnownFields, ReasoningIsWhereTheRequestWantsIt) {
  FieldServer server("<think>Hm.</think>Yes.");
  const auto message = [&](const Json& with) { return server.chat(with)["choices"][0]["message"]; };
  EXPECT_EQ(message(Json::object())["reasoning_content"], "Hm.");
  EXPECT_EQ(message({{"reasoning_format", "deepseek"}})["content"], "Yes.");
  for (const Json& with : {Json{{"reasoning_format", "none"}}, Json{{"separate_reasoning", false}},
                           Json{{"reasoning_in_content", true}}, Json{{"reasoning_format", "raw"}}}) {
    const Json m = message(with);
    EXPECT_EQ(m["content"], "<think>Hm.</think>Yes.");
    EXPECT_FALSE(m.contains("reasoning_content"));
  }
  for (const Json& with : {Json{{"include_reasoning", false}}, Json{{"reasoning", {{"exclude", true}}}},
                           Json{{"reasoning_format", "hidden"}}}) {
    const Json m = message(with);
    EXPECT_EQ(m["content"], "Yes.");
    EXPECT_FALSE(m.contains("reasoning_content"));
  }
  FieldServer cut("<think>Hm.");
  EXPECT_EQ(cut.chat({{"reasoning_format", "none"}})["choices"][0]["message"]["content"], "<think>Hm.</think>");
}

// Item 12.
TEST(KnownFields, MessagesAreWhole) {
  FieldServer server;
  const Json user = {{"role", "user"}, {"content", "Yes?"}};
  const Json call = {{"id", "c"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}};
  const auto param = [&](const Json& messages) { return server.param_of({{"messages", messages}}); };
  EXPECT_EQ(param({{{"role", "user"}}}), "\"messages[0].content\"");
  EXPECT_EQ(param({user, {{"role", "assistant"}, {"content", nullptr}}}), "\"messages[1].content\"");
  EXPECT_EQ(param({user, {{"role", "assistant"}, {"tool_calls", Json::array()}}}), "\"messages[1].content\"");
  EXPECT_EQ(param({user, {{"role", "tool"}, {"content", "a"}}}), "\"messages[1].tool_call_id\"");
  EXPECT_EQ(param({{{"role", "user"}, {"content", {{{"type", "text"}}}}}}), "\"messages[0].content[0].text\"");
  const Json answered = {{"role", "tool"}, {"tool_call_id", "c"}, {"content", "a"}};
  server.chat({{"messages", {user, {{"role", "assistant"}, {"tool_calls", {call}}}, answered}}});
  server.chat({{"messages", {user, {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}}, answered}}});
  server.chat({{"messages", {user, {{"role", "assistant"}, {"reasoning_content", "Hm."}}, user}}});
  EXPECT_EQ(server.param_of({{"messages", {user, {{"role", "assistant"}, {"content", "Y"}}}},
                             {"add_generation_prompt", true},
                             {"continue_final_message", true}}),
            "\"add_generation_prompt\"");
  EXPECT_EQ(server.post("/apply-template", {{"messages", {{{"role", "user"}}}}}, 400)["error"]["param"],
            "messages[0].content");
  EXPECT_EQ(server.post("/api/chat", {{"model", "fake"}, {"messages", {{{"role", "user"}}}}}, 400)["error"]
                .get<std::string>()
                .substr(0, 19),
            "messages[0].content");
}

TEST(KnownFields, CallsAndTheirResultsNameEachOther) {
  FieldServer server;
  const Json question = {{"role", "user"}, {"content", "Yes?"}};
  const auto messages = [&](const Json& block, const char* role, int status) {
    return server.post("/v1/messages",
                       {{"model", "fake"},
                        {"max_tokens", 9},
                        {"messages", {question, {{"role", role}, {"content", Json::array({block})}}}}},
                       status);
  };
  const auto error_of = [&](const Json& block, const char* role) {
    return messages(block, role, 400)["error"]["message"].get<std::string>();
  };
  const Json use = {{"type", "tool_use"}, {"id", "c"}, {"name", "f"}, {"input", {{"a", 1}}}};
  const Json result = {{"type", "tool_result"}, {"tool_use_id", "c"}, {"content", "a"}};
  messages(result, "user", 200);
  server.post("/v1/messages", {{"model", "fake"},
                               {"max_tokens", 9},
                               {"messages",
                                {question,
                                 {{"role", "assistant"}, {"content", Json::array({use})}},
                                 {{"role", "user"}, {"content", Json::array({result})}}}}});
  const std::tuple<Json, const char*, const char*> required[] = {
      {use, "assistant", "id"}, {use, "assistant", "name"}, {result, "user", "tool_use_id"}};
  for (const auto& [whole, role, field] : required) {
    const std::string start = fmt::format("messages[1].content[0].{} is missing: ", field);
    Json block = whole;
    block[field] = "";
    EXPECT_EQ(error_of(block, role).substr(0, start.size()), start);
    block.erase(field);
    EXPECT_EQ(error_of(block, role).substr(0, start.size()), start);
  }
  // Responses: every call and every output has a call_id.
  const Json items[] = {{{"type", "function_call"}, {"call_id", "c"}, {"name", "f"}, {"arguments", "{}"}},
                        {{"type", "function_call_output"}, {"call_id", "c"}, {"output", "a"}},
                        {{"type", "custom_tool_call"}, {"call_id", "c"}, {"name", "f"}, {"input", "a"}},
                        {{"type", "custom_tool_call_output"}, {"call_id", "c"}, {"output", "a"}},
                        {{"type", "local_shell_call"}, {"call_id", "c"}, {"action", {{"command", {"ls"}}}}},
                        {{"type", "shell_call"}, {"call_id", "c"}, {"action", {{"commands", {"ls"}}}}},
                        {{"type", "shell_call_output"}, {"call_id", "c"}, {"output", "a"}},
                        {{"type", "apply_patch_call"}, {"call_id", "c"}, {"operation", {{"type", "delete_file"}}}},
                        {{"type", "apply_patch_call_output"}, {"call_id", "c"}, {"output", "a"}}};
  for (Json item : items) {
    server.post("/v1/responses", {{"input", Json::array({item})}});
    item.erase("call_id");
    const Json error = server.post("/v1/responses", {{"input", Json::array({item})}}, 400)["error"];
    EXPECT_EQ(error["message"], "input[0].call_id is missing") << item;
    EXPECT_EQ(error["param"], "input[0].call_id");
  }
  // Ollama's messages need neither an id nor the name of the tool.
  server.post("/api/chat", {{"model", "fake"}, {"messages", {question, {{"role", "tool"}, {"content", "sunny"}}}}});
  EXPECT_TRUE(server.prompt_has("sunny"));
}

TEST(KnownFields, APrefixIsContinued) {
  FieldServer server;
  for (const char* name : {"prefix", "partial"}) {
    server.chat(
        {{"messages",
          {{{"role", "user"}, {"content", "Yes?"}}, {{"role", "assistant"}, {"content", "Yo"}, {name, true}}}}});
    EXPECT_TRUE(server.prompt().ends_with("\"content\":\"Yo")) << server.prompt();
  }
}

// A request cannot make the header or the search for typing errors grow.
TEST(KnownFields, ManyUnknownFieldsHaveABound) {
  FieldServer server;
  Json body = Json::object();
  for (int i = 0; i < 2000; ++i) body[fmt::format("zz{}zz{}", i, i)] = i;
  body[std::string(5000, 'y')] = 1;
  body["a\r\nX-Evil: 1, b"] = 1;
  server.chat(body);
  EXPECT_LT(server.ignored.size(), 65U * 82U);
  EXPECT_TRUE(server.ignored.ends_with(", ...")) << server.ignored;
  server.chat({{"a\r\nX-Evil: 1, b", 1}});
  EXPECT_EQ(server.ignored, "a??X-Evil:?1??b");
}

// llama.cpp's /infill, OpenAI's and Ollama's suffix: the markers of each family in its order.
TEST(FillIn, PromptsHaveTheMarkersOfTheFamily) {
  constexpr int32_t kPrefix = 201, kSuffix = 202, kMiddle = 203, kFile = 204, kRepository = 205;
  struct Case {
    std::map<std::string, int32_t, std::less<>> markers;
    std::vector<int32_t> prompt;
  };
  const auto p = [](char c) { return static_cast<int32_t>(c); };
  const Case cases[] = {
      {{{"<|fim_prefix|>", kPrefix},
        {"<|fim_suffix|>", kSuffix},
        {"<|fim_middle|>", kMiddle},
        {"<|file_sep|>", kFile},
        {"<|repo_name|>", kRepository}},
       {kPrefix, p('a'), kSuffix, p('b'), kMiddle}},
      {{{"<fim_prefix>", kPrefix}, {"<fim_suffix>", kSuffix}, {"<fim_middle>", kMiddle}},
       {kPrefix, p('a'), kSuffix, p('b'), kMiddle}},
      {{{"<｜fim▁begin｜>", kPrefix}, {"<｜fim▁hole｜>", kSuffix}, {"<｜fim▁end｜>", kMiddle}},
       {kPrefix, p('a'), kSuffix, p('b'), kMiddle}},
      {{{"▁<PRE>", kPrefix}, {"▁<SUF>", kSuffix}, {"▁<MID>", kMiddle}}, {kPrefix, p('a'), kSuffix, p('b'), kMiddle}},
      {{{"[PREFIX]", kPrefix}, {"[SUFFIX]", kSuffix}}, {kSuffix, p('b'), kPrefix, p('a')}},
      {{{"<|code_prefix|>", kPrefix}, {"<|code_suffix|>", kSuffix}, {"<|code_middle|>", kMiddle}},
       {kPrefix, p('a'), kSuffix, p('b'), kMiddle}}};
  for (const Case& c : cases) {
    FieldServer server;
    server.engine->markers = c.markers;
    const Json answer = server.post("/infill", {{"input_prefix", "a"}, {"input_suffix", "b"}});
    EXPECT_EQ(server.engine->last.prompt, c.prompt) << c.markers.begin()->first;
    EXPECT_EQ(answer["content"], "Yes.");
    server.post("/v1/completions", {{"prompt", "a"}, {"suffix", "b"}});
    EXPECT_EQ(server.engine->last.prompt, c.prompt);
    server.post("/api/generate", {{"model", "fake"}, {"prompt", "a"}, {"suffix", "b"}});
    EXPECT_EQ(server.engine->last.prompt, c.prompt);
  }
  // Other files come first, each behind its marker, which also ends the text.
  FieldServer server;
  server.engine->markers = cases[0].markers;
  server.post("/infill", {{"input_prefix", "a"},
                          {"input_suffix", "b"},
                          {"prompt", "c"},
                          {"input_extra", {{{"filename", "f"}, {"text", "t"}}}}});
  const std::vector<int32_t>& prompt = server.engine->last.prompt.tokens();
  EXPECT_EQ(prompt.front(), kRepository);
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), kFile), 2);
  EXPECT_EQ(prompt.back(), 'c');
  EXPECT_EQ(prompt[prompt.size() - 2], kMiddle);
  const std::vector<int32_t>& ends = server.engine->last.stop_tokens;
  EXPECT_NE(std::find(ends.begin(), ends.end(), kFile), ends.end());
}

// tokenizer.ggml.fim_*_token_id of a GGUF file go before the names of families.
TEST(FillIn, TheTokensThatAFileNamesGoFirst) {
  const auto prompt_of = [](FieldServer& server) {
    server.post("/infill", {{"input_prefix", "a"}, {"input_suffix", "b"}, {"prompt", "c"}});
    return server.engine->last.prompt;
  };
  FieldServer unknown_names;
  unknown_names.engine->fill_in = {.prefix = 201, .suffix = 202, .middle = 203, .pad = 206};
  EXPECT_EQ(prompt_of(unknown_names), (std::vector<int32_t>{201, 'a', 202, 'b', 203, 'c'}));
  EXPECT_EQ(unknown_names.engine->last.stop_tokens, std::vector<int32_t>{206});
  unknown_names.engine->fill_in.repository = 204;
  unknown_names.engine->fill_in.file = 205;
  unknown_names.post(
      "/infill", {{"input_prefix", "a"}, {"input_suffix", "b"}, {"input_extra", {{{"filename", "f"}, {"text", "t"}}}}});
  const std::vector<int32_t>& with_files = unknown_names.engine->last.prompt.tokens();
  EXPECT_EQ(with_files.front(), 204);
  EXPECT_EQ(std::count(with_files.begin(), with_files.end(), 205), 2);
  // The names say another thing, and have no effect.
  FieldServer other_names;
  other_names.engine->markers = {{"<fim_prefix>", 211}, {"<fim_suffix>", 212}, {"<fim_middle>", 213}};
  EXPECT_EQ(prompt_of(other_names), (std::vector<int32_t>{211, 'a', 212, 'b', 213, 'c'}));
  other_names.engine->fill_in = {.prefix = 201, .suffix = 202, .middle = 203};
  EXPECT_EQ(prompt_of(other_names), (std::vector<int32_t>{201, 'a', 202, 'b', 203, 'c'}));
  // If the file names the two tokens of a family, the family gives their order and the markers that are left out.
  FieldServer same_names;
  same_names.engine->markers = {{"[PREFIX]", 201}, {"[SUFFIX]", 202}};
  same_names.engine->fill_in = {.prefix = 201, .suffix = 202};
  EXPECT_EQ(prompt_of(same_names), (std::vector<int32_t>{202, 'b', 201, 'a', 'c'}));
  same_names.engine->markers = {{"<fim_prefix>", 201}, {"<fim_suffix>", 202}, {"<fim_middle>", 203}};
  EXPECT_EQ(prompt_of(same_names), (std::vector<int32_t>{201, 'a', 202, 'b', 203, 'c'}));
  // Ids outside of the vocabulary, and a prefix alone, name nothing.
  for (const FillInTokens& tokens : {FillInTokens{.prefix = 201, .suffix = 256}, FillInTokens{.prefix = 201}}) {
    FieldServer server;
    server.engine->fill_in = tokens;
    server.post("/infill", {{"input_prefix", "a"}, {"input_suffix", "b"}}, 400);
  }
}

TEST(FillIn, AModelWithoutMarkersSaysSo) {
  FieldServer server;
  for (const char* path : {"/infill", "/v1/completions", "/api/generate"}) {
    const Json error =
        server.post(path, {{"model", "fake"}, {"prompt", "a"}, {"suffix", "b"}, {"input_prefix", "a"}}, 400)["error"];
    EXPECT_NE(error.dump().find("Qwen2.5-Coder"), std::string::npos) << path << error;
  }
}

// The answers of llama.cpp's own server.
TEST(LlamaCpp, Completion) {
  FieldServer server;
  const Json one =
      server.post("/completion",
                  {{"prompt", "a"}, {"n_predict", 9}, {"return_tokens", true}, {"n_probs", 2}, {"cache_prompt", true}});
  EXPECT_EQ(server.ignored, "cache_prompt");
  EXPECT_EQ(server.engine->last.max_tokens, 9);
  EXPECT_EQ(one["content"], "Yes.");
  EXPECT_EQ(one["tokens"], Json({'Y', '.'})) << "one for each piece of the test's engine";
  EXPECT_EQ(one["stop"], true);
  EXPECT_EQ(one["stop_type"], "eos");
  EXPECT_EQ(one["stopping_word"], "");
  EXPECT_EQ(one["prompt"], "a");
  EXPECT_EQ(one["tokens_predicted"], 4);
  EXPECT_EQ(one["tokens_evaluated"], 1);
  EXPECT_EQ(one["generation_settings"]["n_predict"], 9);
  EXPECT_TRUE(one["timings"].contains("predicted_per_second"));
  ASSERT_EQ(one["completion_probabilities"].size(), 2U);
  EXPECT_EQ(one["completion_probabilities"][0]["bytes"], Json({'Y'}));
  EXPECT_EQ(one["completion_probabilities"][0]["id"], 'Y');
  EXPECT_EQ(
      server.post("/completions", {{"prompt", "a"}, {"response_fields", {"content", "generation_settings/n_predict"}}}),
      Json({{"content", "Yes."}, {"n_predict", -1}}));
  // Lists of prompts, and token ids and texts in one.
  const Json two = server.post("/completion", {{"prompt", {"a", Json::array({65, 66})}}});
  ASSERT_TRUE(two.is_array());
  EXPECT_EQ(two[1]["prompt"], "AB");
  EXPECT_EQ(two[1]["index"], 1);
  EXPECT_EQ(server.post("/completion", {{"prompt", {65, "b", 67}}})["prompt"], "AbC");
  EXPECT_EQ(server.post("/completion", {{"prompt", {{"prompt_string", "a"}}}})["content"], "Yes.");
  EXPECT_EQ(server.post("/completion", {{"prompt", {65, 5000}}}, 400)["error"]["param"], "prompt[1]");
  EXPECT_EQ(server.post("/completion", {{"prompt", "a"}, {"repeat_penalty", "x"}}, 400)["error"]["param"],
            "repeat_penalty");
  server.post("/completion", {{"prompt", "a"}, {"repeat_penalty", 1.5}, {"max_tokens", 7}});
  EXPECT_FLOAT_EQ(server.engine->last.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(server.engine->last.max_tokens, 7);
  HttpRequest call = make_request("POST", "/completion", Json({{"prompt", "a"}, {"stream", true}}).dump());
  const auto answer = server.app.handle(call);
  const std::vector<Json> events = events_of(body_of(*answer));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0]["content"].get<std::string>() + events[1]["content"].get<std::string>(), "Yes.");
  EXPECT_EQ(events[0]["stop"], false);
  EXPECT_EQ(events[2]["stop"], true);
  EXPECT_EQ(events[2]["content"], "");
}

TEST(LlamaCpp, PropsAndSlotsAndPathsWithoutAVersion) {
  FieldServer server;
  const auto get = [&](const std::string& path, int status = 200) {
    HttpRequest call = make_request("GET", path);
    const auto answer = server.app.handle(call);
    EXPECT_EQ(answer->status, status) << path;
    return Json::parse(body_of(*answer));
  };
  const Json props = get("/props");
  EXPECT_EQ(props["total_slots"], 4);
  EXPECT_EQ(props["model_path"], "fake");
  EXPECT_EQ(props["chat_template"], kThinkingTemplate);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 1000);
  EXPECT_TRUE(props["default_generation_settings"]["params"].contains("temperature"));
  server.engine->now.running = 1;
  const Json slots = get("/slots");
  ASSERT_EQ(slots.size(), 4U);
  EXPECT_EQ(slots[0]["is_processing"], true);
  EXPECT_EQ(slots[1]["is_processing"], false);
  for (const char* path : {"/models", "/v1/models/", "//v1/models", "/v1//models", "/v1/v1/models"})
    EXPECT_EQ(get(path)["data"][0]["id"], "fake") << path;
  const Json messages = {{{"role", "user"}, {"content", "Yes?"}}};
  for (const char* path : {"/chat/completions", "/v1/chat/completions/", "//v1//chat/completions"})
    EXPECT_EQ(server.post(path, {{"messages", messages}})["choices"][0]["message"]["content"], "Yes.") << path;
  get("/v1/nothing", 404);
}

TEST(ModelNames, AliasesAndAnyName) {
  FieldServer plain;
  plain.post("/v1/completions", {{"model", "gpt-4o"}, {"prompt", "a"}}, 404);
  App app({.residency = {.takes_any_name = true}});
  auto model = std::make_shared<ServedModel>("fake", std::make_unique<FakeEngine>("Yes.", kThinkingTemplate), 4);
  model->set_aliases({"gpt-4o", "local"});
  app.models().add(model);
  app.set_ready();
  for (const char* name : {"fake", "gpt-4o", "local", "local:latest", "claude-sonnet-4", "a/b:c"}) {
    HttpRequest call = make_request("POST", "/v1/completions", Json({{"model", name}, {"prompt", "a"}}).dump());
    const auto answer = app.handle(call);
    const Json json = Json::parse(body_of(*answer));
    EXPECT_EQ(answer->status, 200) << name;
    EXPECT_EQ(json["model"], name) << "the name of the request";
  }
  HttpRequest call = make_request("GET", "/v1/models");
  const Json list = Json::parse(body_of(*app.handle(call)))["data"];
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[1]["id"], "gpt-4o");
  EXPECT_EQ(list[1]["root"], "fake");
  call = make_request("GET", "/api/tags");
  EXPECT_EQ(Json::parse(body_of(*app.handle(call)))["models"][2]["name"], "local");
}

TEST(KnownFields, TheFormatOfAJsonObjectMayHaveASchema) {
  FieldServer server;
  const Json schema = {{"type", "object"}, {"properties", {{"a", {{"type", "integer"}}}}}};
  server.chat({{"response_format", {{"type", "json_object"}, {"schema", schema}}}});
  EXPECT_EQ(Json::parse(server.engine->last.constraint.text), schema);
}

// How JSON is written is an option beside the schema, whichever field has that.
TEST(KnownFields, OptionsOfJsonHoldForEverySchema) {
  FieldServer server;
  const Json schema = {{"type", "object"}, {"properties", {{"a", {{"type", "integer"}}}}}};
  const Json tool = {{"type", "function"}, {"function", {{"name", "f"}, {"parameters", schema}}}};
  const Json with_schema[] = {{{"response_format", {{"type", "json_object"}}}},
                              {{"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}}}},
                              {{"structured_outputs", {{"json", schema}}}},
                              {{"structured_outputs", {{"json_object", true}}}},
                              {{"guided_json", schema}},
                              {{"json_schema", schema}},
                              {{"tools", {tool}}, {"tool_choice", "required"}}};
  const auto format_of = [&](Json body, const Json& options) {
    body.merge_patch(options);
    server.chat(body);
    return server.engine->last.constraint.json;
  };
  for (const Json& body : with_schema) {
    EXPECT_FALSE(format_of(body, Json::object()).is_compact) << body;
    EXPECT_FALSE(format_of(body, Json::object()).allows_additional) << body;
    EXPECT_TRUE(format_of(body, Json::object()).is_relaxed) << body;
    for (const Json& compact :
         {Json{{"structured_outputs", {{"disable_any_whitespace", true}}}},
          Json{{"structured_outputs", {{"whitespace_pattern", ""}}}}, Json{{"guided_whitespace_pattern", ""}}}) {
      EXPECT_TRUE(format_of(body, compact).is_compact) << body << compact;
      EXPECT_FALSE(format_of(body, compact).allows_additional) << body << compact;
      EXPECT_EQ(server.ignored, "");
    }
    EXPECT_FALSE(format_of(body, {{"structured_outputs", {{"disable_any_whitespace", false}}}}).is_compact);
    EXPECT_FALSE(format_of(body, {{"structured_outputs", {{"whitespace_pattern", "[ ]*"}}}}).is_compact);
    EXPECT_EQ(server.ignored, "structured_outputs.whitespace_pattern");
    EXPECT_FALSE(format_of(body, {{"guided_whitespace_pattern", "[ ]*"}}).is_compact);
    EXPECT_EQ(server.ignored, "guided_whitespace_pattern");
    EXPECT_TRUE(
        format_of(body, {{"structured_outputs", {{"disable_additional_properties", false}}}}).allows_additional);
    EXPECT_FALSE(
        format_of(body, {{"structured_outputs", {{"disable_additional_properties", true}}}}).allows_additional);
  }
  server.post("/v1/responses", {{"input", "Yes?"},
                                {"text", {{"format", {{"type", "json_schema"}, {"name", "a"}, {"schema", schema}}}}},
                                {"structured_outputs", {{"disable_any_whitespace", true}}}});
  EXPECT_TRUE(server.engine->last.constraint.json.is_compact);
  const Json error = server.post(
      "/v1/responses", {{"input", "Yes?"}, {"text", {{"format", {{"type", "json_object"}}}}}, {"guided_json", schema}},
      400)["error"];
  EXPECT_EQ(error["message"], "text.format and guided_json exclude each other");
  EXPECT_EQ(server.param_of({{"guided_json", schema}, {"grammar", "root ::= \"a\""}}), "\"grammar\"");
}

// `strict` makes a keyword that cannot be enforced an error; else the header names it, with the field of its schema.
TEST(KnownFields, KeywordsThatAreNotEnforcedAreNamed) {
  FieldServer server;
  server.engine->unenforced = {"oneOf", "uniqueItems"};
  const Json schema = {{"type", "array"}, {"uniqueItems", true}};
  const auto named = [](const std::string& field) { return field + ".oneOf, " + field + ".uniqueItems"; };
  const Json format = {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}};
  server.chat({{"response_format", format}});
  EXPECT_EQ(server.ignored, named("response_format.json_schema.schema"));
  for (const bool strict : {false, true}) {
    Json with = format;
    with["json_schema"]["strict"] = strict;
    server.chat({{"response_format", with}});
    EXPECT_EQ(server.ignored, strict ? "" : named("response_format.json_schema.schema"));
    EXPECT_EQ(server.engine->last.constraint.json.is_relaxed, !strict);
    const Json flat = {{"type", "json_schema"}, {"name", "a"}, {"schema", schema}, {"strict", strict}};
    server.post("/v1/responses", {{"input", "Yes?"}, {"text", {{"format", flat}}}});
    EXPECT_EQ(server.ignored, strict ? "" : named("text.format.schema"));
    EXPECT_EQ(server.engine->last.constraint.json.is_relaxed, !strict);
    const Json tool = {{"type", "function"},
                       {"function", {{"name", "f"}, {"parameters", {{"type", "object"}}}, {"strict", strict}}}};
    server.chat({{"tools", {tool}}, {"tool_choice", "required"}});
    EXPECT_EQ(server.engine->last.constraint.json.is_relaxed, !strict);
    EXPECT_EQ(server.ignored, strict ? "" : "tools[].function.strict, " + named("tools"));
    const Json claude = {{"name", "f"}, {"input_schema", {{"type", "object"}}}, {"strict", strict}};
    server.post("/v1/messages", {{"model", "fake"},
                                 {"max_tokens", 9},
                                 {"messages", {{{"role", "user"}, {"content", "Yes?"}}}},
                                 {"tools", {claude}},
                                 {"tool_choice", {{"type", "any"}}}});
    EXPECT_EQ(server.engine->last.constraint.json.is_relaxed, !strict);
    const Json flat_tool = {
        {"type", "function"}, {"name", "f"}, {"parameters", {{"type", "object"}}}, {"strict", strict}};
    server.post("/v1/responses", {{"input", "Yes?"}, {"tools", {flat_tool}}, {"tool_choice", "required"}});
    EXPECT_EQ(server.engine->last.constraint.json.is_relaxed, !strict);
  }
  server.chat({{"structured_outputs", {{"json", schema}}}});
  EXPECT_EQ(server.ignored, named("structured_outputs.json"));
  server.chat({{"guided_json", schema}});
  EXPECT_EQ(server.ignored, named("guided_json"));
  const Json messages = Json::array({{{"role", "user"}, {"content", "Yes?"}}});
  server.post("/v1/messages", {{"model", "fake"},
                               {"max_tokens", 9},
                               {"messages", messages},
                               {"output_config", {{"format", {{"type", "json_schema"}, {"schema", schema}}}}}});
  EXPECT_EQ(server.ignored, named("output_config.format.schema"));
  server.post("/api/chat", {{"model", "fake"}, {"messages", messages}, {"format", schema}});
  EXPECT_EQ(server.ignored, named("format"));
}

}  // namespace
}  // namespace redline::server
