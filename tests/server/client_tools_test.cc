// Tools that agents list and items that they send: what the model sees, how calls are answered, what is skipped.
#include "server/client_tools.h"

#include <gtest/gtest.h>

#include "server/answers.h"
#include "server/chat.h"
#include "server/fake_engine.h"

namespace redline::server {
namespace {

using testing::FakeEngine;

constexpr char kToolTemplate[] = "<tool_call> {{ tools }}";

std::string hermes_call(const std::string& name, const Json& arguments) {
  return "<tool_call>\n" + Json{{"name", name}, {"arguments", arguments}}.dump() + "\n</tool_call>";
}

/// An App with a model that answers `script`.
struct AgentServer {
  App app{{}};
  FakeEngine* engine;
  std::string ignored;
  explicit AgentServer(std::string script, std::string chat_template = kToolTemplate) {
    auto made = std::make_unique<FakeEngine>(std::move(script), std::move(chat_template));
    made->set_context(100000);
    engine = made.get();
    app.models().add(std::make_shared<ServedModel>("fake", std::move(made), 4));
    app.set_ready();
  }
  std::string post(const std::string& path, const Json& body, int status = 200) {
    HttpRequest call = make_request("POST", path, body.dump());
    const auto answer = app.handle(call);
    ignored = header_of(*answer, "X-Redline-Ignored");
    const std::string text = body_of(*answer);
    EXPECT_EQ(answer->status, status) << text;
    return text;
  }
  Json json(const std::string& path, const Json& body, int status = 200) {
    return Json::parse(post(path, body, status));
  }
  /// Returns the last prompt, which has the messages and tools that the template was given.
  std::string prompt() const { return {engine->last.prompt.tokens().begin(), engine->last.prompt.tokens().end()}; }
};

const Json kShell = {{"type", "function"},
                     {"name", "shell"},
                     {"parameters", {{"type", "object"}, {"properties", {{"cmd", {{"type", "string"}}}}}}}};
const Json kPatch = {{"type", "custom"},
                     {"name", "apply_patch"},
                     {"description", "Changes files."},
                     {"format", {{"type", "grammar"}, {"syntax", "lark"}, {"definition", "start: \"a\""}}}};

Json codex_body(Json tools) {
  return {{"model", "fake"},
          {"instructions", "Be brief."},
          {"input", Json::array({{{"type", "message"},
                                  {"role", "developer"},
                                  {"content", Json::array({{{"type", "input_text"}, {"text", "Rules."}}})}},
                                 {{"type", "message"},
                                  {"role", "user"},
                                  {"content", Json::array({{{"type", "input_text"}, {"text", "Go."}}})}}})},
          {"tools", std::move(tools)}};
}

TEST(ClientTools, ResponsesSkipToolsOfTheVendorAndNameThem) {
  AgentServer server("ok");
  Json tools = Json::array({kShell, kPatch});
  for (const char* type : {"web_search", "local_shell", "image_generation", "tool_search", "mcp", "file_search",
                           "code_interpreter", "computer_use_preview"})
    tools.push_back({{"type", type}});
  tools[2]["external_web_access"] = false;
  server.json("/v1/responses", codex_body(tools));
  for (const char* type : {"web_search", "local_shell", "image_generation", "tool_search", "mcp", "file_search",
                           "code_interpreter", "computer_use_preview"})
    EXPECT_NE(server.ignored.find(fmt::format("tools[{}]", type)), std::string::npos) << server.ignored;
  EXPECT_EQ(server.ignored.find("tools[custom]"), std::string::npos) << server.ignored;
  const std::string prompt = server.prompt();
  EXPECT_NE(prompt.find("\"name\":\"shell\""), std::string::npos) << prompt;
  EXPECT_NE(prompt.find("\"name\":\"apply_patch\""), std::string::npos) << prompt;
  EXPECT_NE(prompt.find("start: "), std::string::npos) << "the grammar is part of the description: " << prompt;
  EXPECT_EQ(prompt.find("web_search"), std::string::npos) << prompt;
  // Instructions and the developer's message are one message of the system.
  EXPECT_NE(prompt.find("Be brief.\\n\\nRules."), std::string::npos) << prompt;
}

TEST(ClientTools, ADemandedCustomToolFollowsItsGrammar) {
  AgentServer server("ok");
  Json body = codex_body(Json::array({kShell, kPatch}));
  server.json("/v1/responses", body);
  EXPECT_EQ(server.engine->last.constraint.kind, OutputConstraint::Kind::kNone);
  body["tool_choice"] = {{"type", "custom"}, {"name", "apply_patch"}};
  server.json("/v1/responses", body);
  EXPECT_EQ(server.engine->last.constraint.kind, OutputConstraint::Kind::kToolCalls);
  const Json demanded = Json::parse(server.engine->last.constraint.text);
  ASSERT_EQ(demanded.size(), 1u);
  EXPECT_EQ(demanded[0]["function"]["format"], kPatch["format"]);
}

TEST(ClientTools, CustomToolsAreCalledWithText) {
  const std::string patch = "*** Begin Patch\n\"é\"";
  AgentServer server(hermes_call("apply_patch", {{"input", patch}}));
  Json body = codex_body(Json::array({kShell, kPatch}));
  const Json item = server.json("/v1/responses", body)["output"].back();
  EXPECT_EQ(item["type"], "custom_tool_call") << item;
  EXPECT_EQ(item["name"], "apply_patch");
  EXPECT_EQ(item["input"], patch);
  EXPECT_EQ(item["status"], "completed");
  EXPECT_TRUE(item["id"].get<std::string>().starts_with("ctc_"));

  body["stream"] = true;
  std::string input, last;
  bool is_added = false;
  for (const Json& event : events_of(server.post("/v1/responses", body))) {
    last = event["type"];
    if (last == "response.custom_tool_call_input.delta") input += event["delta"].get<std::string>();
    if (last == "response.custom_tool_call_input.done") {
      EXPECT_EQ(event["input"], patch);
    }
    if (last == "response.output_item.added" && event["item"]["type"] == "custom_tool_call") {
      is_added = true;
      EXPECT_EQ(event["item"]["input"], "");
    }
    if (last == "response.output_item.done" && event["item"]["type"] == "custom_tool_call") {
      EXPECT_EQ(event["item"]["input"], patch);
    }
    EXPECT_NE(last, "response.function_call_arguments.delta");
  }
  EXPECT_TRUE(is_added);
  EXPECT_EQ(input, patch);
  EXPECT_EQ(last, "response.completed");

  // The next request has the call and its result: the model sees what it wrote.
  body["stream"] = false;
  body["input"].push_back(item);
  body["input"].push_back({{"type", "custom_tool_call_output"}, {"call_id", item["call_id"]}, {"output", "Done."}});
  server.json("/v1/responses", body);
  EXPECT_NE(server.prompt().find("*** Begin Patch"), std::string::npos);
  EXPECT_NE(server.prompt().find("\"content\":\"Done.\""), std::string::npos) << server.prompt();
}

TEST(ClientTools, ChatsHaveCustomToolsToo) {
  AgentServer server(hermes_call("note", {{"input", "x"}}));
  Json body = {{"model", "fake"},
               {"messages", Json::array({{{"role", "user"}, {"content", "Go."}}})},
               {"tools", Json::array({{{"type", "custom"}, {"custom", {{"name", "note"}, {"description", "Notes."}}}},
                                      {{"type", "web_search"}}})}};
  const Json message = server.json("/v1/chat/completions", body)["choices"][0]["message"];
  const Json& call = message["tool_calls"][0];
  EXPECT_EQ(call["type"], "custom");
  EXPECT_EQ(call["custom"], Json({{"name", "note"}, {"input", "x"}}));
  EXPECT_NE(server.ignored.find("tools[web_search]"), std::string::npos) << server.ignored;
  body["messages"].push_back(message);
  body["messages"].push_back({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "Noted."}});
  server.json("/v1/chat/completions", body);
  EXPECT_NE(server.prompt().find("{\\\"input\\\":\\\"x\\\"}"), std::string::npos) << server.prompt();
}

TEST(ClientTools, FunctionsOfANamespaceKeepIt) {
  const Json space = {{"type", "namespace"},
                      {"name", "mcp__files"},
                      {"description", "Files."},
                      {"tools", Json::array({{{"type", "function"}, {"name", "read"}, {"parameters", Json::object()}},
                                             {{"type", "web_search"}}})}};
  AgentServer server(hermes_call("mcp__files__read", {{"path", "a"}}));
  Json body = codex_body(Json::array({space}));
  const Json item = server.json("/v1/responses", body)["output"].back();
  EXPECT_EQ(item["type"], "function_call");
  EXPECT_EQ(item["name"], "read");
  EXPECT_EQ(item["namespace"], "mcp__files");
  EXPECT_NE(server.ignored.find("tools[mcp__files.web_search]"), std::string::npos) << server.ignored;
  body["input"].push_back(item);
  body["input"].push_back({{"type", "function_call_output"}, {"call_id", item["call_id"]}, {"output", "text of a"}});
  body["tool_choice"] = {{"type", "function"}, {"name", "read"}, {"namespace", "mcp__files"}};
  server.json("/v1/responses", body);
  EXPECT_NE(server.prompt().find("mcp__files__read"), std::string::npos);
  EXPECT_EQ(name_in_space("a__", "b"), "a__b");
  EXPECT_EQ(name_in_space("", "b"), "b");
}

TEST(ClientTools, AllowedToolsLimitThePrompt) {
  AgentServer server("ok");
  Json body = codex_body(Json::array({kShell, kPatch}));
  body["tool_choice"] = {
      {"type", "allowed_tools"}, {"mode", "auto"}, {"tools", Json::array({{{"type", "function"}, {"name", "shell"}}})}};
  server.json("/v1/responses", body);
  EXPECT_NE(server.prompt().find("\"name\":\"shell\""), std::string::npos);
  EXPECT_EQ(server.prompt().find("apply_patch"), std::string::npos);
  body["tool_choice"] = {{"type", "web_search"}};
  EXPECT_EQ(server.json("/v1/responses", body, 400)["error"]["param"], "tool_choice");
}

TEST(ClientTools, WrongToolsAreNamed) {
  AgentServer server("ok");
  const auto param = [&](const char* path, const Json& body) { return server.json(path, body, 400)["error"]["param"]; };
  EXPECT_EQ(param("/v1/responses", codex_body(Json::array({{{"type", "custom"}}}))), "tools[0].name");
  EXPECT_EQ(param("/v1/responses", codex_body(Json::array({{{"name", "a"}}}))), "tools[0].type");
  EXPECT_EQ(param("/v1/responses",
                  codex_body(Json::array(
                      {{{"type", "namespace"}, {"name", "a"}, {"tools", Json::array({{{"type", "function"}}})}}}))),
            "tools[0].tools[0].name");
  const Json messages = Json::array({{{"role", "user"}, {"content", "Go."}}});
  EXPECT_EQ(param("/v1/chat/completions", {{"messages", messages}, {"tools", Json::array({{{"type", "function"}}})}}),
            "tools[0].function");
}

TEST(ClientTools, ItemsOfCodexAreTaken) {
  AgentServer server("ok");
  Json body = codex_body(Json::array({kShell}));
  Json& input = body["input"];
  input.push_back({{"type", "reasoning"}, {"summary", Json::array()}, {"encrypted_content", "gAAA"}});
  input.push_back({{"type", "reasoning"},
                   {"summary", Json::array({{{"type", "summary_text"}, {"text", "Think of cats."}}})},
                   {"content", nullptr},
                   {"encrypted_content", "gAAA"}});
  input.push_back({{"type", "web_search_call"},
                   {"id", "ws_1"},
                   {"status", "completed"},
                   {"action", {{"type", "search"}, {"query", "cats"}}}});
  input.push_back({{"type", "local_shell_call"},
                   {"call_id", "c1"},
                   {"status", "completed"},
                   {"action", {{"type", "exec"}, {"command", {"ls", "-l"}}}}});
  input.push_back({{"type", "local_shell_call_output"}, {"call_id", "c1"}, {"output", "a.txt"}});
  input.push_back({{"type", "item_reference"}, {"id", "msg_unknown"}});
  input.push_back({{"type", "compaction"}, {"encrypted_content", "gAAA"}});
  input.push_back({{"type", "an_item_of_tomorrow"}});
  server.json("/v1/responses", body);
  const std::string prompt = server.prompt();
  EXPECT_NE(prompt.find("Think of cats."), std::string::npos) << prompt;
  EXPECT_NE(prompt.find("\"name\":\"local_shell\""), std::string::npos) << prompt;
  EXPECT_NE(prompt.find("\"content\":\"a.txt\""), std::string::npos) << prompt;
  for (const char* type : {"web_search_call", "item_reference", "compaction", "an_item_of_tomorrow"})
    EXPECT_NE(server.ignored.find(fmt::format("input[{}]", type)), std::string::npos) << server.ignored;

  input.push_back({{"type", "function_cal"}, {"call_id", "c"}});
  EXPECT_EQ(server.json("/v1/responses", body, 400)["error"]["param"], fmt::format("input[{}].type", input.size() - 1));
  input.back() = {{"type", "function_call_output"},
                  {"call_id", "c1"},
                  {"output", Json::array({{{"type", "input_image"}, {"detail", "auto"}}})}};
  EXPECT_EQ(server.json("/v1/responses", body, 400)["error"]["param"],
            fmt::format("input[{}].output[0]", input.size() - 1));
}

TEST(ClientTools, ReferencesNameItemsOfStoredResponses) {
  AgentServer server("The answer of before.");
  const Json first = server.json("/v1/responses", {{"model", "fake"}, {"input", "Go."}});
  const Json reference = {{"type", "item_reference"}, {"id", first["output"][0]["id"]}};
  server.json(
      "/v1/responses",
      {{"model", "fake"},
       {"input",
        Json::array({{{"role", "user"}, {"content", "Go."}}, reference, {{"role", "user"}, {"content", "On."}}})}});
  EXPECT_NE(server.prompt().find("The answer of before."), std::string::npos) << server.prompt();
  EXPECT_EQ(server.ignored.find("item_reference"), std::string::npos) << server.ignored;
}

// ---- /v1/messages ----

Json claude_body(Json messages, Json tools = Json::array()) {
  Json body = {{"model", "fake"}, {"max_tokens", 10}, {"messages", std::move(messages)}};
  if (!tools.empty()) body["tools"] = std::move(tools);
  return body;
}

TEST(ClaudeCode, SystemMessagesBecomePartOfTheSystemPrompt) {
  AgentServer server("ok");
  Json body = claude_body({{{"role", "user"}, {"content", "hi"}},
                           {{"role", "system"}, {"content", "Agents: x"}},
                           {{"role", "assistant"}, {"content", "yes"}},
                           {{"role", "user"}, {"content", "go"}},
                           {{"role", "system"}, {"content", Json::array({{{"type", "text"}, {"text", "Note."}}})}}});
  body["system"] = Json::array({{{"type", "text"}, {"text", "x-anthropic-billing-header: cc_version=1; cch=7;"}},
                                {{"type", "text"}, {"text", "You help."}}});
  body["thinking"] = {{"type", "adaptive"}};
  body["context_management"] = {{"edits", Json::array()}};
  server.json("/v1/messages", body);
  const std::string prompt = server.prompt();
  const Json messages = Json::parse(prompt.substr(0, prompt.find("]") + 1));
  ASSERT_EQ(messages.size(), 4u) << messages;
  EXPECT_EQ(messages[0], Json({{"role", "system"}, {"content", "You help.\n\nAgents: x\n\nNote."}}));
  EXPECT_EQ(messages[1]["content"], "hi");
  EXPECT_EQ(messages[3]["content"], "go");
  EXPECT_NE(server.ignored.find("system[x-anthropic-billing-header]"), std::string::npos) << server.ignored;
  Json counted = body;
  counted.erase("max_tokens");
  EXPECT_EQ(server.json("/v1/messages/count_tokens", counted)["input_tokens"], prompt.size());
}

TEST(ClaudeCode, ToolsOfTheVendorAreSkippedAndNamed) {
  AgentServer server("ok");
  const Json custom = {{"name", "Read"}, {"input_schema", {{"type", "object"}}}};
  Json tools = Json::array({custom, {{"type", "custom"}, {"name", "Bash"}, {"input_schema", {{"type", "object"}}}}});
  for (const char* type :
       {"web_search_20250305", "bash_20250124", "text_editor_20250728", "code_execution_20250825", "web_fetch_20250910",
        "computer_20250124", "memory_20250818", "tool_search_tool_regex_20251119"})
    tools.push_back({{"type", type}, {"name", "x"}});
  tools[2]["max_uses"] = 3;
  server.json("/v1/messages", claude_body(Json::array({{{"role", "user"}, {"content", "hi"}}}), tools));
  EXPECT_NE(server.prompt().find("\"name\":\"Bash\""), std::string::npos);
  for (const char* type : {"web_search_20250305", "bash_20250124", "text_editor_20250728", "memory_20250818"})
    EXPECT_NE(server.ignored.find(fmt::format("tools[{}]", type)), std::string::npos) << server.ignored;
  const Json error = server.json(
      "/v1/messages", claude_body(Json::array({{{"role", "user"}, {"content", "hi"}}}), Json::array({{{"name", "a"}}})),
      400);
  EXPECT_NE(error["error"]["message"].get<std::string>().find("tools[0].input_schema"), std::string::npos) << error;
}

Json result_of(Json content) {
  return claude_body(
      {{{"role", "user"}, {"content", "hi"}},
       {{"role", "assistant"},
        {"content", Json::array({{{"type", "tool_use"}, {"id", "c"}, {"name", "Read"}, {"input", Json::object()}}})}},
       {{"role", "user"},
        {"content", Json::array({{{"type", "tool_result"}, {"tool_use_id", "c"}, {"content", std::move(content)}}})}}});
}

TEST(ClaudeCode, PartsOfToolResultsAreUsed) {
  AgentServer server("ok");
  const Json text_source = {{"type", "text"}, {"media_type", "text/plain"}, {"data", "Once."}};
  server.json("/v1/messages",
              result_of(Json::array({{{"type", "text"}, {"text", "First."}},
                                     {{"type", "document"}, {"title", "Tale"}, {"source", text_source}},
                                     {{"type", "tool_reference"}, {"tool_name", "mcp__find"}},
                                     {{"type", "search_result"},
                                      {"title", "Cats"},
                                      {"source", "cats.txt"},
                                      {"content", Json::array({{{"type", "text"}, {"text", "They sleep."}}})}}})));
  EXPECT_NE(server.prompt().find("First.\\nTale\\nOnce.\\nmcp__find\\nCats\\ncats.txt\\nThey sleep."),
            std::string::npos)
      << server.prompt();
}

TEST(ClaudeCode, PartsThatAreNoTextAreRefusedByName) {
  AgentServer server("ok");
  const auto message = [&](const Json& body) {
    return server.json("/v1/messages", body, 400)["error"]["message"].get<std::string>();
  };
  const Json image = {{"type", "image"}, {"source", {{"type", "base64"}, {"media_type", "image/png"}, {"data", "AA"}}}};
  const Json pdf = {{"type", "document"},
                    {"source", {{"type", "base64"}, {"media_type", "application/pdf"}, {"data", "AA"}}}};
  EXPECT_NE(message(result_of(Json::array({image}))).find("messages[2].content[0].content[0] is of type image"),
            std::string::npos);
  EXPECT_NE(message(result_of(Json::array({pdf}))).find("messages[2].content[0].content[0].source"), std::string::npos);
  EXPECT_NE(message(result_of(Json::array({{{"type", "sound"}}}))).find("is \"sound\"; it must be one of"),
            std::string::npos);
  EXPECT_NE(message(claude_body(Json::array({{{"role", "user"}, {"content", Json::array({image})}}})))
                .find("messages[0].content[0]"),
            std::string::npos);
  EXPECT_NE(message(result_of(Json::array({{{"type", "document"},
                                            {"source", {{"type", "content"}, {"content", Json::array({image})}}}}})))
                .find("source.content[0] is of type image"),
            std::string::npos);
}

TEST(ClaudeCode, WhatTheVendorsServerDidIsLeftOutAndNamed) {
  AgentServer server("ok");
  server.json(
      "/v1/messages",
      claude_body(
          {{{"role", "user"}, {"content", "hi"}},
           {{"role", "assistant"},
            {"content",
             Json::array({{{"type", "thinking"}, {"thinking", "One."}, {"signature", "s"}},
                          {{"type", "redacted_thinking"}, {"data", "AA"}},
                          {{"type", "thinking"}, {"thinking", "Two."}, {"signature", "s"}},
                          {{"type", "server_tool_use"}, {"id", "s"}, {"name", "web_search"}, {"input", {{"q", 1}}}},
                          {{"type", "web_search_tool_result"}, {"tool_use_id", "s"}, {"content", Json::array()}},
                          {{"type", "text"}, {"text", "Found."}}})}},
           {{"role", "user"}, {"content", "go"}}}));
  EXPECT_NE(server.prompt().find("\"reasoning_content\":\"One.\\nTwo.\""), std::string::npos) << server.prompt();
  EXPECT_NE(server.prompt().find("\"content\":\"Found.\""), std::string::npos) << server.prompt();
  for (const char* type : {"server_tool_use", "web_search_tool_result", "redacted_thinking"})
    EXPECT_NE(server.ignored.find(fmt::format("messages[].content[{}]", type)), std::string::npos) << server.ignored;
}

// ---- templates without tools ----

TEST(ToolsAsText, ATemplateWithoutToolsHasThemInItsSystemMessage) {
  AgentServer server(hermes_call("shell", {{"cmd", "ls"}}), "{{ messages }}");
  Json body = codex_body(Json::array({kShell}));
  const Json item = server.json("/v1/responses", body)["output"].back();
  EXPECT_EQ(item["type"], "function_call") << item;
  EXPECT_EQ(item["name"], "shell");
  EXPECT_NE(server.prompt().find("<tools>"), std::string::npos) << server.prompt();
  EXPECT_NE(server.prompt().find("Be brief.\\n\\nRules.\\n\\nYou can call functions."), std::string::npos);

  body["input"].push_back(item);
  body["input"].push_back({{"type", "function_call_output"}, {"call_id", item["call_id"]}, {"output", "a.txt"}});
  server.json("/v1/responses", body);
  EXPECT_NE(server.prompt().find("<tool_response>\\na.txt\\n</tool_response>"), std::string::npos) << server.prompt();
  EXPECT_EQ(server.prompt().find("\"role\":\"tool\""), std::string::npos) << server.prompt();
}

}  // namespace
}  // namespace redline::server
