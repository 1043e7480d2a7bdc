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

/// Demanded calls of f or g, which have these parameters.
ConstraintResult calls_of_two(const std::string& f, const std::string& g) {
  const auto tool = [](const char* name, const std::string& parameters) {
    return fmt::format(R"({{"type": "function", "function": {{"name": "{}", "parameters": {}}}}})", name, parameters);
  };
  return calls(tool_call_grammar_words_of("hermes"), false, "", "[" + tool("f", f) + "," + tool("g", g) + "]");
}
std::string hermes_call(const char* name, const std::string& arguments) {
  return fmt::format("<tool_call>\n{{\"name\": \"{}\", \"arguments\": {}}}\n</tool_call>", name, arguments);
}

TEST(EqualSchemas, ShareStatesWhateverTheirAnnotations) {
  const auto states = [](const ConstraintResult& constraint) {
    EXPECT_TRUE(constraint.ok()) << constraint.status().to_string();
    return constraint.ok() ? (*constraint)->automaton().num_states() : 0;
  };
  const std::string pattern = R"("pattern": "^[a-z]{1,8}(-[a-z0-9]+)*$", "type": "string")";
  const std::string object = R"({"type": "object", "required": ["a"], "properties": {"a": {)" + pattern + "}}}";
  const std::string described = R"({"title": "T", "type": "object", "required": ["a"],
    "properties": {"a": {"description": "the d", "default": "x", )" +
                                pattern + R"(}}, "$comment": "c"})";
  const std::string by_reference = R"({"$defs": {"p": {)" + pattern + R"(}}, "type": "object", "required": ["a"],
    "properties": {"a": {"title": "T", "$ref": "#/$defs/p"}}})";
  const size_t same = states(calls_of_two(object, object));
  EXPECT_EQ(states(calls_of_two(object, described)), same);
  const std::string other = R"({"type": "object", "required": ["a"], "properties": {"a": {"type": "string",
    "pattern": "^[a-z]{1,8}(-[a-z1-9]+)*$"}}})";
  EXPECT_GT(states(calls_of_two(object, other)), same);
  EXPECT_EQ(states(calls_of_two(object, by_reference)), same);
}

TEST(EqualSchemas, DifferentOnesDoNot) {
  struct Pair {
    const char *f, *g, *only_f, *only_g;  // only_g "": what g takes is taken by f as well
  };
  const Pair pairs[] = {
      // Words that are annotations elsewhere are names of members and values here.
      {R"({"properties": {"title": {"enum": [1]}}, "required": ["title"]})",
       R"({"properties": {"default": {"enum": [1]}}, "required": ["default"]})", R"({"title": 1})",
       R"({"default": 1})"},
      {R"({"properties": {"a": {"const": {"title": 1}}}, "required": ["a"]})",
       R"({"properties": {"a": {"const": {"title": 2}}}, "required": ["a"]})", R"({"a": {"title": 1}})",
       R"({"a": {"title": 2}})"},
      // The order of the names is the order of the members.
      {R"({"properties": {"title": {"enum": [1]}, "a": {"enum": [1]}}, "required": ["title", "a"]})",
       R"({"properties": {"a": {"enum": [1]}, "title": {"enum": [1]}}, "required": ["title", "a"]})",
       R"({"title": 1, "a": 1})", R"({"a": 1, "title": 1})"},
      // One reference, two documents.
      {R"({"$defs": {"x": {"enum": [1]}}, "properties": {"a": {"$ref": "#/$defs/x"}}, "required": ["a"]})",
       R"({"$defs": {"x": {"enum": [2]}}, "properties": {"a": {"$ref": "#/$defs/x"}}, "required": ["a"]})",
       R"({"a": 1})", R"({"a": 2})"},
      {R"({"properties": {"a": {"anyOf": [{"enum": [1]}, {"$ref": "#"}]}}, "required": ["a"]})",
       R"({"properties": {"a": {"anyOf": [{"enum": [2]}, {"$ref": "#"}]}}, "required": ["a"]})", R"({"a": {"a": 1}})",
       R"({"a": {"a": 2}})"},
      // Draft 7 ignores what stands beside a reference.
      {R"({"$schema": "http://json-schema.org/draft-07/schema#", "$defs": {"x": {"enum": [1, 2, 3]}},
           "properties": {"a": {"$ref": "#/$defs/x", "minimum": 3}}, "required": ["a"], "maxProperties": 1})",
       R"({"$defs": {"x": {"enum": [3, 4]}}, "properties": {"a": {"$ref": "#/$defs/x", "minimum": 3}},
           "required": ["a"], "maxProperties": 1})",
       R"({"a": 1})", R"({"a": 4})"},
      // Draft 3 has `required` in the schema of the property.
      {R"({"$schema": "http://json-schema.org/draft-03/schema#", "definitions": {"x": {"enum": [1]}},
           "properties": {"a": {"$ref": "#/definitions/x"}, "b": {"enum": [1]}}})",
       R"({"$schema": "http://json-schema.org/draft-03/schema#", "definitions": {"x": {"enum": [1]}},
           "properties": {"a": {"$ref": "#/definitions/x", "required": true}, "b": {"enum": [1]}}})",
       R"({"b": 1})", ""},
      {R"({"properties": {"a": {"items": {"enum": [1]}, "type": "array", "minItems": 1}}, "required": ["a"]})",
       R"({"properties": {"a": {"items": [{"enum": [1]}, {"enum": [2]}], "type": "array", "minItems": 2,
           "maxItems": 2}}, "required": ["a"]})",
       R"({"a": [1, 1]})", R"({"a": [1, 2]})"},
  };
  for (const Pair& pair : pairs) {
    const auto constraint = calls_of_two(pair.f, pair.g);
    ASSERT_TRUE(constraint.ok()) << pair.f << ": " << constraint.status().to_string();
    EXPECT_TRUE(matches(*constraint, hermes_call("f", pair.only_f))) << pair.f;
    EXPECT_FALSE(matches(*constraint, hermes_call("g", pair.only_f))) << pair.g;
    if (!*pair.only_g) continue;
    EXPECT_TRUE(matches(*constraint, hermes_call("g", pair.only_g))) << pair.g;
    EXPECT_FALSE(matches(*constraint, hermes_call("f", pair.only_g))) << pair.f;
  }
  // A keyword with a value of the wrong type is an error, although the same text is right elsewhere.
  EXPECT_FALSE(calls_of_two(R"({"additionalProperties": {"enum": [1]}})", R"({"additionalProperties": 1})").ok());
}

// Work is counted in states of the automaton and in parse states of a step, which ConstraintLimits bound. The values of
// all tools but for "mode" are equal, so only the names and the texts between the values are a tool's own.
void check_many_tools(const char* format, std::string_view call, bool several) {
  const std::string words = tool_call_grammar_words_of(format);
  const auto few = calls(words, several, "", many_tools(50)), many = calls(words, several, "", many_tools(500));
  ASSERT_TRUE(few.ok()) << few.status().to_string();
  ASSERT_TRUE(many.ok()) << many.status().to_string();
  EXPECT_LE((*many)->automaton().num_states(), 11 * (*few)->automaton().num_states());
  EXPECT_LE((*many)->automaton().num_states(), 500U * 260);
  ConstraintState state(*many);
  TokenBits bits((*many)->trie().num_words());
  uint64_t most = 0;
  for (const char c : call) {
    const uint64_t before = state.work_done();
    ASSERT_TRUE(state.fill_mask(bits).ok());
    ASSERT_TRUE(state.accept_text(std::string(1, c)).ok()) << c;
    most = std::max(most, state.work_done() - before);
  }
  EXPECT_TRUE(state.is_complete());
  ::testing::Test::RecordProperty("most_step_work", std::to_string(most));
  ::testing::Test::RecordProperty("states", std::to_string((*many)->automaton().num_states()));
  EXPECT_LE(most, ConstraintLimits().max_step_work / 10);
}

TEST(DemandedCallsOfManyTools, GrowWithTheNumberOfTools) {
  for (const bool several : {false, true}) {
    check_many_tools("hermes",
                     "<tool_call>\n{\"name\": \"tool_number_499\", \"arguments\": {\"path\": \"a\", \"mode\": "
                     "\"m499\"}}\n</tool_call>",
                     several);
    check_many_tools("qwen-xml",
                     "<tool_call>\n<function=tool_number_499>\n<parameter=path>\na\n</parameter>\n<parameter=mode>\n"
                     "m499\n</parameter>\n</function>\n</tool_call>",
                     several);
  }
}

}  // namespace
}  // namespace redline
