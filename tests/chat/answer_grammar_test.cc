// Constraints of answers with reasoning: what the grammar allows is read as reasoning and content that matches, for the
// templates of all families.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "chat/chat_output.h"
#include "chat/chat_template.h"
#include "chat/tool_call_grammar.h"
#include "constraints/constraint_harness.h"
#include "constraints/gbnf.h"
#include "constraints/json_schema.h"

namespace redline {
namespace {

using AnswerJson = nlohmann::ordered_json;

constexpr std::string_view kAnswerSchema = R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": 1,
  "maximum": 9}, "b": {"enum": ["<think>", "</think> {", "<tool_call>", "<|channel|>"]}}, "required": ["a", "b"],
  "additionalProperties": false})";
// One text without white space between its tokens.
constexpr std::string_view kOneString = R"({"const": "<think>"})";
constexpr std::string_view kAnswerTools = R"([{"type": "function", "function": {"name": "f", "parameters": {"type":
  "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": false}}}])";
constexpr std::string_view kAnswerMessages = R"([{"role": "user", "content": "u"}])";

ConstraintResult answer_constraint(const ToolCallRules& rules, Grammar text, ContentKind kind) {
  const ConstraintLimits limits;
  CompileDeadline deadline(limits);
  REDLINE_ASSIGN(const Grammar grammar, grammar_of_answer(rules, std::move(text), kind, *small_trie(), deadline));
  return Constraint::compile(grammar, small_trie(), limits, deadline);
}
ConstraintResult json_answer(std::string_view chat_template, std::string_view prompt, std::string_view tools = "",
                             std::string_view schema = kAnswerSchema) {
  CompileDeadline deadline{ConstraintLimits{}};
  REDLINE_ASSIGN(Grammar text, grammar_of_json_schema(schema, {}, deadline));
  return answer_constraint({chat_template, prompt, tools}, std::move(text), ContentKind::kJson);
}
ConstraintResult text_answer(std::string_view chat_template, std::string_view prompt, std::string_view gbnf) {
  CompileDeadline deadline{ConstraintLimits{}};
  REDLINE_ASSIGN(Grammar text, parse_gbnf(gbnf, *small_trie(), deadline));
  return answer_constraint({chat_template, prompt, ""}, std::move(text), ContentKind::kMatched);
}

std::string walk_after(const std::shared_ptr<const Constraint>& constraint, std::string beginning,
                       std::mt19937& random) {
  return random_walk(constraint, random, 500, {}, std::move(beginning));
}

/// Returns the text that a model writes first: reasoning up to its end marker, as the place in the prompt demands.
std::string thought(std::string_view chat_template, AnswerPlace place) {
  const ReasoningMarkers markers = reasoning_markers(chat_template);
  if (!*markers.open || place == AnswerPlace::kContent) return "";
  return fmt::format("{}So {{\"a\": 12}} <b> \"é\".\n{}", place == AnswerPlace::kReasoning ? "" : markers.open,
                     markers.close);
}

ChatTemplateOptions template_options() {
  ChatTemplateOptions options;
  options.special_tokens_json = R"({"bos_token": "<s>", "eos_token": "</s>"})";
  return options;
}

struct TemplateFile {
  std::string name, text;
};
std::vector<TemplateFile> shared_templates() {
  std::vector<TemplateFile> files;
  const std::filesystem::path folder = REDLINE_SOURCE_DIR "/../shared/models/chat-templates";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".jinja") continue;
    std::ifstream file(entry.path());
    files.push_back({entry.path().stem().string(), {std::istreambuf_iterator<char>(file), {}}});
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return files;
}

void check_json_answer(std::string_view source, std::string_view prompt, std::string_view tools, std::mt19937& random) {
  const AnswerPlace place = answer_place(source, prompt);
  const auto constraint = json_answer(source, prompt, tools);
  ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
  const std::string first = thought(source, place);
  if (!first.empty()) {
    EXPECT_FALSE(matches(*constraint, "So." + std::string(reasoning_markers(source).close) + "{\"a\": 12}"));
  }
  size_t calls = 0;
  for (int round = 0; round < 6; ++round) {
    // Where the model opens the reasoning, it may leave it out.
    const bool thinks = place == AnswerPlace::kReasoning || round % 2 == 0;
    std::string begin = thinks ? first : chat_output_format(source).answer_begin + std::string("{");
    if (first.empty()) begin.clear();  // a walk cannot go astray
    if (chat_output_format(source).has_channels && place == AnswerPlace::kAnswer) begin = "<|start|>assistant" + begin;
    const std::string text = walk_after(*constraint, begin, random);
    const ChatOutput output = parse_chat_output({source, prompt, tools, ContentKind::kJson}, text);
    EXPECT_EQ(output.reasoning.empty(), !thinks || first.empty()) << text;
    calls += output.tool_calls.size();
    if (!output.tool_calls.empty()) {
      EXPECT_EQ(output.content, "") << text;
      EXPECT_EQ(output.tool_calls[0].name, "f") << text;
      continue;
    }
    const AnswerJson json = AnswerJson::parse(output.content, nullptr, false);
    EXPECT_TRUE(json.is_object() && json.contains("a") && json.contains("b")) << text << "\n" << output.content;
  }
  if (tools.empty()) {
    EXPECT_EQ(calls, 0U);
  }
}

TEST(AnswerGrammar, JsonAfterTheReasoningOfEveryTemplate) {
  const std::vector<TemplateFile> files = shared_templates();
  if (files.empty()) GTEST_SKIP() << "../shared/models/chat-templates is not there";
  std::mt19937 random(7);
  size_t in_reasoning = 0, off = 0;
  for (const TemplateFile& file : files) {
    SCOPED_TRACE(file.name);
    const auto compiled = ChatTemplate::compile(file.text, template_options());
    ASSERT_TRUE(compiled.ok());
    for (const char* thinking : {"", "on", "none"}) {
      SCOPED_TRACE(thinking);
      ChatInput input{kAnswerMessages, "", ""};
      input.thinking = thinking;
      const auto prompt = compiled->render(input);
      if (!compiled->render({kAnswerMessages, "", ""}).ok()) continue;  // a template for tools only
      ASSERT_TRUE(prompt.ok()) << prompt.status().to_string();
      const AnswerPlace place = answer_place(file.text, *prompt);
      in_reasoning += place == AnswerPlace::kReasoning;
      off +=
          thinking == std::string_view("none") && *reasoning_markers(file.text).open && place == AnswerPlace::kContent;
      check_json_answer(file.text, *prompt, "", random);
      if (thinking == std::string_view("")) check_json_answer(file.text, *prompt, kAnswerTools, random);
    }
  }
  EXPECT_GE(in_reasoning, 7U);
  EXPECT_GE(off, 10U);
}

TEST(AnswerGrammar, TheTemplatesOwnRenderingMatches) {
  const std::vector<TemplateFile> files = shared_templates();
  if (files.empty()) GTEST_SKIP() << "../shared/models/chat-templates is not there";
  size_t checked = 0;
  for (const TemplateFile& file : files) {
    SCOPED_TRACE(file.name);
    const auto compiled = ChatTemplate::compile(file.text, template_options());
    ASSERT_TRUE(compiled.ok());
    const std::string content = R"("<think>")";
    const std::string messages = fmt::format(R"([{{"role": "user", "content": "u"}}, {{"role": "assistant",
      "reasoning_content": "So.", "content": {}}}])",
                                             AnswerJson(content).dump());
    const auto prompt = compiled->render({kAnswerMessages, "", ""}),
               whole = compiled->render({messages, "", "", false});
    if (!prompt.ok() || !whole.ok() || !whole->starts_with(*prompt)) continue;
    const size_t end = whole->rfind(content);
    if (end == std::string::npos || whole->find("So.", prompt->size()) == std::string::npos) continue;
    const auto constraint = json_answer(file.text, *prompt, "", kOneString);
    ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
    EXPECT_TRUE(matches(*constraint, whole->substr(prompt->size(), end + content.size() - prompt->size()))) << *whole;
    ++checked;
  }
  EXPECT_GE(checked, 8U);
}

TEST(AnswerGrammar, TextKeepsItsWhiteSpaceBehindTheSeparator) {
  const std::string qwen = "<tool_call> <think> </think>", prompt = "<|im_start|>assistant\n<think>\n";
  for (const char* gbnf : {"root ::= \"\\n\" [a ]{1,3}", "root ::= [ \\n]{1,4}", "root ::= \"yes\" | \" no\" | \"\""}) {
    SCOPED_TRACE(gbnf);
    const auto answer = text_answer(qwen, prompt, gbnf), bare = grammar(gbnf);
    ASSERT_TRUE(answer.ok() && bare.ok());
    std::mt19937 random(3);
    for (int round = 0; round < 12; ++round) {
      const std::string text = walk_after(*answer, "So.</think>", random);
      const ChatOutput output = parse_chat_output({qwen, prompt, "", ContentKind::kMatched}, text);
      EXPECT_EQ(output.reasoning, "So.");
      EXPECT_TRUE(matches(*bare, output.content)) << text << "|" << output.content;
    }
  }
}

TEST(AnswerGrammar, WithThinkingOffTheConstraintHoldsFromTheFirstToken) {
  const std::string qwen = "<tool_call> <think> </think>";
  const auto off = json_answer(qwen, "<|im_start|>assistant\n<think>\n\n</think>\n\n", "", kOneString),
             open = json_answer(qwen, "<|im_start|>assistant\n", "", kOneString);
  ASSERT_TRUE(off.ok() && open.ok());
  EXPECT_FALSE(ConstraintState(*off).allows("<"));
  EXPECT_FALSE(ConstraintState(*off).allows(" "));
  EXPECT_EQ(ConstraintState(*off).forced_bytes(), "\"<think>\"");
  EXPECT_TRUE(matches(*open, "<think>So.</think>\n\n\"<think>\""));
  EXPECT_TRUE(matches(*open, "\"<think>\""));
  EXPECT_FALSE(matches(*open, "So.</think>\"<think>\""));
}

TEST(AnswerGrammar, HarmonyChannels) {
  const std::string harmony = "<|channel|> <|message|> analysis", prompt = "<|start|>assistant";
  constexpr std::string_view kTools = R"([{"type": "function", "function": {"name": "g"}}])";
  const auto constraint = json_answer(harmony, prompt, kTools, kOneString);
  ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
  const std::string json = R"("<think>")", final = "<|channel|>final<|message|>" + json,
                    analysis = "<|channel|>analysis<|message|>So.<|end|><|start|>assistant";
  EXPECT_TRUE(matches(*constraint, final));
  EXPECT_TRUE(matches(*constraint, analysis + final));
  EXPECT_FALSE(matches(*constraint, json));
  const std::string call = "<|channel|>commentary to=functions.g <|constrain|>json<|message|>{}";
  EXPECT_TRUE(matches(*constraint, analysis + call));
  const ChatOutput output = parse_chat_output({harmony, prompt, kTools, ContentKind::kJson}, analysis + final);
  EXPECT_EQ(output.reasoning, "So.");
  EXPECT_EQ(output.content, json);
}

}  // namespace
}  // namespace redline
