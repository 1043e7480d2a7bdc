// Demanded calls: what the grammar lets a model write is what the family's reader takes for a call with valid
// arguments.
#include "chat/tool_call_grammar.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>

#include "chat/chat_output.h"
#include "constraints/constraint_harness.h"

namespace redline {
namespace {

using ToolCallGrammarJson = nlohmann::ordered_json;

// Every text is short, so that a random walk through it ends.
constexpr std::string_view kToolCallGrammarTools = R"([
  {"type": "function", "function": {"name": "f", "parameters": {"type": "object",
    "properties": {"city": {"type": "string", "enum": ["Bern", "Ulm <b>"]}, "days": {"type": "integer", "minimum": 1,
    "maximum": 9},
                   "where": {"type": "object", "properties": {"lat": {"enum": [1.5, null]}}, "required": ["lat"],
                             "additionalProperties": false},
                   "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}},
    "required": ["city", "days"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "g"}}])";

constexpr const char* kFormats[] = {
    "plain",       "hermes",        "qwen-xml",       "seed",       "functionary",     "minicpm",
    "glm",         "hunyuan",       "command",        "apertus",    "solar",           "lfm2",
    "gigachat",    "gigachat-role", "nemotron",       "tool-calls", "functools",       "phi",
    "granite",     "mistral",       "llama",          "kimi",       "deepseek-fenced", "deepseek",
    "dsml",        "gemma",         "minimax-invoke", "harmony",    "minimax-nested",  "atem",
    "command-text"};

std::string tool_call_grammar_words_of(std::string_view format, std::string_view more = "") {
  std::string words(more);
  const ChatOutputFormat* row = find_chat_output_format(format);
  EXPECT_NE(row, nullptr) << format;
  for (const char* word : row->words)
    if (word) words += std::string(" ") + word;
  return words;
}

ConstraintResult calls(std::string_view chat_template, bool several = false, std::string_view prompt = "",
                       std::string_view tools = kToolCallGrammarTools) {
  return compile_tool_calls({chat_template, prompt, tools, several}, small_trie());
}

void check_arguments(const ChatToolCall& call) {
  const ToolCallGrammarJson arguments = ToolCallGrammarJson::parse(call.arguments);
  if (call.name == "g") {
    EXPECT_EQ(arguments, ToolCallGrammarJson::object());
    return;
  }
  EXPECT_EQ(call.name, "f");
  EXPECT_TRUE(arguments.at("city") == "Bern" || arguments.at("city") == "Ulm <b>") << call.arguments;
  EXPECT_TRUE(arguments.at("days").is_number_integer()) << call.arguments;
  EXPECT_THAT(arguments.at("days").get<int>(), ::testing::AllOf(::testing::Ge(1), ::testing::Le(9)));
  if (arguments.contains("where")) {
    EXPECT_TRUE(arguments["where"].contains("lat")) << call.arguments;
  }
  for (const ToolCallGrammarJson& tag : arguments.value("tags", ToolCallGrammarJson::array()))
    EXPECT_TRUE(tag.is_boolean()) << call.arguments;
}

class DemandedCalls : public ::testing::TestWithParam<const char*> {};

TEST_P(DemandedCalls, AreReadAsCalls) {
  const std::string words = tool_call_grammar_words_of(GetParam());
  const bool is_harmony = GetParam() == std::string_view("harmony"), is_atem = GetParam() == std::string_view("atem");
  const std::string prompt = is_harmony || is_atem ? "<|start|>assistant" : "";
  std::mt19937 random(7);
  for (const bool several : {false, true}) {
    const auto constraint = calls(words, several, prompt);
    ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
    size_t most = 0;
    for (int walk = 0; walk < 20; ++walk) {
      // A walk through the analysis would not end.
      const std::string text = random_walk(*constraint, random, 2000, {},
                                           is_harmony ? "<|channel|>commentary"
                                           : is_atem  ? " to=f"
                                                      : "");
      const ChatOutput output = parse_chat_output({words, prompt, kToolCallGrammarTools}, text);
      EXPECT_EQ(output.content, "") << text;
      ASSERT_FALSE(output.tool_calls.empty()) << text;
      for (const ChatToolCall& call : output.tool_calls) check_arguments(call);
      most = std::max(most, output.tool_calls.size());
    }
    if (!several) {
      EXPECT_EQ(most, 1U);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Formats, DemandedCalls, ::testing::ValuesIn(kFormats), [](const auto& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
});

TEST(ToolCallGrammar, Hermes) {
  const auto one = calls(tool_call_grammar_words_of("hermes")),
             several = calls(tool_call_grammar_words_of("hermes"), true);
  ASSERT_TRUE(one.ok() && several.ok());
  const std::string call =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\":\"Bern\",\"days\":3}}\n</tool_call>";
  EXPECT_TRUE(matches(*one, call));
  EXPECT_FALSE(matches(*one, call + "\n" + call));
  EXPECT_TRUE(matches(*several, call + "\n" + call));
  EXPECT_FALSE(matches(*one, "Hello" + call));
  EXPECT_FALSE(matches(*one, "<tool_call>\n{\"name\": \"h\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(
      matches(*one, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\":\"Rom\",\"days\":3}}\n</tool_call>"));
}

TEST(ToolCallGrammar, ReasoningComesFirst) {
  const std::string words = tool_call_grammar_words_of("hermes", "<think>"),
                    call = "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
  const auto begins = calls(words);
  ASSERT_TRUE(begins.ok());
  EXPECT_TRUE(matches(*begins, call));
  EXPECT_TRUE(matches(*begins, "<think>\na < b </thin k>\n</think>\n\n" + call));
  EXPECT_FALSE(matches(*begins, "<think>\nSo." + call));
  const auto goes_on = calls(words, false, "<|im_start|>assistant\n<think>\n");
  ASSERT_TRUE(goes_on.ok());
  EXPECT_FALSE(matches(*goes_on, call));
  EXPECT_TRUE(matches(*goes_on, "So.\n</think>\n\n" + call));
}

TEST(ToolCallGrammar, TextsWithoutQuotes) {
  constexpr std::string_view kText = R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
    "properties": {"text": {"type": "string"}}, "required": ["text"]}}}])";
  const auto constraint = calls(tool_call_grammar_words_of("qwen-xml"), false, "", kText);
  ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
  const auto call = [](const std::string& text) {
    return "<tool_call>\n<function=f>\n<parameter=text>\n" + text + "\n</parameter>\n</function>\n</tool_call>";
  };
  EXPECT_TRUE(matches(*constraint, call("if (a < b) { return \"<p>\"; } </param")));
  EXPECT_TRUE(matches(*constraint, call("é</</parameter")));
  EXPECT_FALSE(matches(*constraint, call("a</parameter>b")));
}

TEST(ToolCallGrammar, TheBeginningIsForced) {
  const auto constraint = calls(tool_call_grammar_words_of("hermes"));
  ASSERT_TRUE(constraint.ok());
  EXPECT_EQ(ConstraintState(*constraint).forced_bytes(), "<tool_call>\n{\"name\": \"");
}

TEST(ToolCallGrammar, Errors) {
  const std::string hermes = tool_call_grammar_words_of("hermes");
  const auto message = [](const ConstraintResult& result) {
    EXPECT_FALSE(result.ok());
    return result.ok() ? "" : result.status().message();
  };
  EXPECT_THAT(message(calls(hermes, false, "", "{}")), ::testing::HasSubstr("a list of functions"));
  EXPECT_THAT(message(calls(hermes, false, "", "[]")), ::testing::HasSubstr("a list of functions"));
  EXPECT_THAT(message(calls(hermes, false, "", R"([{"function": {}}])")), ::testing::HasSubstr("has no name"));
  EXPECT_THAT(message(calls(hermes, false, "", R"([{"function": {"name": "a b"}}])")), ::testing::HasSubstr("\"a b\""));
  EXPECT_THAT(message(calls(hermes, false, "", R"([{"function": {"name": "f", "parameters": {"type": 5}}}])")),
              ::testing::HasSubstr("tool f: JSON schema: the root: type"));
  EXPECT_THAT(message(calls(tool_call_grammar_words_of("qwen-xml"), false, "",
                            R"([{"function": {"name": "f", "parameters": {"anyOf": [{"type": "object"}]}}}])")),
              ::testing::HasSubstr("anyOf at the root"));
  EXPECT_THAT(
      message(calls(tool_call_grammar_words_of("lfm2"), false, "",
                    R"([{"function": {"name": "f", "parameters": {"properties": {"a-b": {"type": "null"}}}}}])")),
      ::testing::HasSubstr("\"lfm2\" cannot be demanded"));
}

/// As many tools as large agents have, each with a schema of its own.
std::string many_tools(int count) {
  ToolCallGrammarJson tools = ToolCallGrammarJson::array();
  for (int i = 0; i < count; ++i)
    tools.push_back(ToolCallGrammarJson::parse(fmt::format(
        R"({{"type": "function", "function": {{"name": "tool_number_{}", "parameters": {{"type": "object", "properties":
        {{"path": {{"type": "string"}}, "mode": {{"enum": ["fast", "slow", "m{}"]}},
          "count": {{"type": "integer", "minimum": 0, "maximum": 100}},
          "names": {{"type": "array", "items": {{"type": "string", "maxLength": 20}}}},
          "pattern": {{"type": "string", "pattern": "^[a-z]{{1,8}}(-[a-z0-9]+)*$"}}}},
        "required": ["path", "mode"]}}}}}})",
        i, i)));
  return tools.dump();
}

// Work is counted in states of the automaton and in parse states of a step, which ConstraintLimits bound.
TEST(DemandedCallsOfManyTools, GrowWithTheNumberOfTools) {
  const std::string words = tool_call_grammar_words_of("hermes");
  const auto few = calls(words, false, "", many_tools(50)), many = calls(words, false, "", many_tools(500));
  ASSERT_TRUE(few.ok()) << few.status().to_string();
  ASSERT_TRUE(many.ok()) << many.status().to_string();
  EXPECT_LE((*many)->automaton().num_states(), 11 * (*few)->automaton().num_states());
  EXPECT_LE((*many)->automaton().num_states(), 500U * 600);
  ConstraintState state(*many);
  TokenBits bits((*many)->trie().num_words());
  uint64_t most = 0;
  for (const char c : std::string("<tool_call>\n{\"name\": \"tool_number_499\", \"arguments\": {\"path\": \"a\", "
                                  "\"mode\": \"m499\"}}\n</tool_call>")) {
    const uint64_t before = state.work_done();
    ASSERT_TRUE(state.fill_mask(bits).ok());
    ASSERT_TRUE(state.accept_text(std::string(1, c)).ok()) << c;
    most = std::max(most, state.work_done() - before);
  }
  EXPECT_TRUE(state.is_complete());
  RecordProperty("most_step_work", std::to_string(most));
  RecordProperty("states", std::to_string((*many)->automaton().num_states()));
  EXPECT_LE(most, ConstraintLimits().max_step_work / 10);
}

}  // namespace
}  // namespace redline
