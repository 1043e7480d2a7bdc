// Tests that split the output of chat models into content, reasoning and tool calls: each family's format, pieces of
// any size, and what the families' own templates render as the assistant's message.
#include "chat/chat_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "chat/chat_template.h"

namespace redline {
namespace {

using ChatOutputJson = nlohmann::ordered_json;

constexpr std::string_view kChatOutputTools =
    R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
  "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "where": {"type": "object"}}}}}])";

std::string described(const ChatOutput& output) {
  std::string text;
  if (!output.reasoning.empty()) text += "(" + output.reasoning + ")";
  text += output.content;
  for (const ChatToolCall& call : output.tool_calls) {
    text += "|" + call.name + call.arguments;
    if (!call.id.empty()) text += "#" + call.id;
  }
  return text;
}

/// A template that has the words of a format, for its parser.
std::string chat_output_words_of(std::string_view format, std::string_view more) {
  std::string words(more);
  const ChatOutputFormat* row = find_chat_output_format(format);
  EXPECT_NE(row, nullptr) << format;
  for (const char* word : row->words)
    if (word) words += std::string(" ") + word;
  EXPECT_EQ(&chat_output_format(words), row);
  return words;
}

std::string parsed(std::string_view format, std::string_view text, std::string_view words = "<think>",
                   std::string_view prompt = "") {
  const std::string all = chat_output_words_of(format, words);
  return described(parse_chat_output({all, prompt, kChatOutputTools}, text));
}

TEST(ChatOutput, ContentAndReasoning) {
  EXPECT_EQ(parsed("plain", "Hello\n"), "Hello\n");
  EXPECT_EQ(parsed("plain", "<think>\nSo.\n</think>\n\nHello"), "(So.)Hello");
  EXPECT_EQ(parsed("plain", "So.\n</think>\n\nHello", "<think>", "<|im_start|>assistant\n<think>\n"), "(So.)Hello");
  EXPECT_EQ(parsed("plain", "<think>never ends"), "(never ends)");
  EXPECT_EQ(parsed("plain", "<think>\n\n</think>\n\nHello"), "Hello");
  EXPECT_EQ(parsed("plain", "a < b <thin c"), "a < b <thin c");
  EXPECT_EQ(parsed("plain", "<think>kept, the template knows none", ""), "<think>kept, the template knows none");
  EXPECT_EQ(parsed("plain", "[THINK]So.[/THINK]Hello", "[THINK]"), "(So.)Hello");
  EXPECT_EQ(parsed("plain", "<think>a</think>b<think>c</think>d"), "(a\nc)bd");
}

TEST(ChatOutput, JsonInTags) {
  EXPECT_EQ(parsed("hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>"),
            "|f{\"city\": \"Bern\"}");
  EXPECT_EQ(parsed("hermes",
                   "Looking.\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n"
                   "<tool_call>{\"name\": \"g\", \"arguments\": {\"x\": [1]}}</tool_call>\n"),
            "Looking.|f{}|g{\"x\": [1]}");
  EXPECT_EQ(parsed("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"t\": \"</tool_call>\"}}</tool_call>"),
            "|f{\"t\": \"</tool_call>\"}");
  EXPECT_EQ(parsed("hermes", "<tool_call>{\"arguments\": \"{\\\"a\\\": 1}\", \"name\": \"f\"}</tool_call>"),
            "|f{\"a\": 1}");
  EXPECT_EQ(parsed("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}}"), "|f{}");
  EXPECT_EQ(parsed("nemotron",
                   "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]</TOOLCALL>"),
            "|f{}|g{}");
  EXPECT_EQ(
      parsed("tool-calls",
             "<tool_calls>\n{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": {}}\n</tool_calls>"),
      "|f{}|g{}");
  EXPECT_EQ(parsed("granite", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]"), "|f{}");
  EXPECT_EQ(parsed("functools", "functools[{\"name\": \"f\", \"arguments\": {}}]"), "|f{}");
  EXPECT_EQ(parsed("phi", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>"), "|f{}");
  EXPECT_EQ(parsed("gigachat", "Now.<|function_call|>{\"name\": \"f\", \"arguments\": {}}"), "Now.|f{}");
  EXPECT_EQ(parsed("command",
                   "<|START_THINKING|>Plan.<|END_THINKING|><|START_ACTION|>[\n  {\"tool_call_id\": \"0\", "
                   "\"tool_name\": \"f\", \"parameters\": {}}\n]<|END_ACTION|>",
                   "<|START_THINKING|>"),
            "(Plan.)|f{}#0");
  EXPECT_EQ(parsed("command", "<|START_RESPONSE|>Hi<|END_RESPONSE|>"), "Hi");
  EXPECT_EQ(parsed("apertus", "<|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g\": {}}]<|tools_suffix|>"),
            "|f{\"a\": 1}|g{}");
}

TEST(ChatOutput, NamesBeforeJson) {
  EXPECT_EQ(parsed("mistral", "[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{\"a\": 1}"), "|f{\"a\": 1}#abc123def");
  EXPECT_EQ(parsed("mistral", "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}"), "|f{\"a\": 1}|g{}");
  EXPECT_EQ(parsed("mistral", "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}, \"id\": \"abc\"}]"), "|f{}#abc");
  EXPECT_EQ(parsed("deepseek",
                   "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
                   "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
            "|f{\"a\": 1}|g{}");
  EXPECT_EQ(parsed("deepseek-fenced",
                   "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
                   "1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
            "|f{\"a\": 1}");
  EXPECT_EQ(parsed("kimi",
                   "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": "
                   "1}<|tool_call_end|><|tool_calls_section_end|>"),
            "|f{\"a\": 1}#functions.f:0");
  EXPECT_EQ(parsed("functionary", "<function=f>{\"a\": 1}</function><function=g>{}</function>"), "|f{\"a\": 1}|g{}");
  EXPECT_EQ(parsed("solar",
                   "<|think|>So.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>id1<|tool_call:name|>f"
                   "<|tool_call:args|>{\"a\": 1}<|tool_call:end|><|calls|>",
                   "<|think|>"),
            "(So.)|f{\"a\": 1}#id1");
}

TEST(ChatOutput, ValuesWithoutQuotes) {
  EXPECT_EQ(parsed("qwen-xml",
                   "<tool_call>\n<function=f>\n<parameter=city>\n42\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
                   "<parameter=where>\n{\"lat\": "
                   "1}\n</parameter>\n<parameter=new>\nBern\n\n</parameter>\n</function>\n</tool_call>"),
            "|f{\"city\": \"42\", \"days\": 3, \"where\": {\"lat\": 1}, \"new\": \"Bern\\n\"}");
  EXPECT_EQ(parsed("qwen-xml", "<tool_call>\n<function=g>\n</function>\n</tool_call>"), "|g{}");
  EXPECT_EQ(parsed("seed",
                   "<seed:tool_call>\n<function=f>\n<parameter=city>Bern</parameter>\n</function>\n</seed:tool_call>"),
            "|f{\"city\": \"Bern\"}");
  EXPECT_EQ(parsed("glm",
                   "<tool_call>f\n<arg_key>city</arg_key>\n<arg_value>7</arg_value>\n<arg_key>days</arg_key>\n"
                   "<arg_value>7</arg_value>\n</tool_call>"),
            "|f{\"city\": \"7\", \"days\": 7}");
  EXPECT_EQ(parsed("hunyuan",
                   "<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:opensource>days"
                   "</arg_key:opensource>\n<arg_value:opensource>2</arg_value:opensource>\n</tool_call:opensource>\n"
                   "</tool_calls:opensource>"),
            "|f{\"days\": 2}");
  EXPECT_EQ(parsed("dsml",
                   "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"city\" "
                   "string=\"true\">7</｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\">[1]"
                   "</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n"
                   "</｜DSML｜function_calls>"),
            "|f{\"city\": \"7\", \"n\": [1]}|g{}");
  EXPECT_EQ(parsed("minimax-invoke",
                   "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"city\">Bern</parameter>\n"
                   "</invoke>\n</minimax:tool_call>"),
            "|f{\"city\": \"Bern\"}");
  EXPECT_EQ(parsed("minimax-nested",
                   "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<city>7]<]minimax[>[</city>"
                   "]<]minimax[>[<where>]<]minimax[>[<tags>]<]minimax[>[<item>a]<]minimax[>[</item>]<]minimax[>[</tags>"
                   "]<]minimax[>[</where>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>"),
            "|f{\"city\": \"7\", \"where\": {\"tags\": [\"a\"]}}");
  EXPECT_EQ(parsed("minicpm",
                   "Hm.<function name=\"f\"><param name=\"city\"><![CDATA[<b>]]></param></function>"
                   "<function name=\"g\"></function>"),
            "Hm.|f{\"city\": \"<b>\"}|g{}");
}

TEST(ChatOutput, Literals) {
  EXPECT_EQ(
      parsed("lfm2", "<|tool_call_start|>[f(city='it\\'s', n=[1, 2.5, None], d={'k': True}), g()]<|tool_call_end|>"),
      "|f{\"city\": \"it's\", \"n\": [1, 2.5, null], \"d\": {\"k\": true}}|g{}");
  EXPECT_EQ(parsed("llama", "<|python_tag|>brave_search.call(query=\"x y\")"), "|brave_search{\"query\": \"x y\"}");
  EXPECT_EQ(parsed("llama", "{\"name\": \"f\", \"parameters\": {\"a\": 1}}"), "|f{\"a\": 1}");
  EXPECT_EQ(parsed("llama", "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}"),
            "|f{}|g{}");
  EXPECT_EQ(parsed("gemma", "<|tool_call>call:f{city:<|\"|>a, }b<|\"|>,n:[1,true],d:{k:<|\"|>v<|\"|>}}<tool_call|>"),
            "|f{\"city\": \"a, }b\", \"n\": [1, true], \"d\": {\"k\": \"v\"}}");
}

TEST(ChatOutput, Channels) {
  const std::string prompt = "<|start|>system<|message|>S<|end|><|start|>assistant";
  EXPECT_EQ(
      parsed("harmony", "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Hi",
             "", prompt),
      "(Think.)Hi");
  EXPECT_EQ(parsed("harmony",
                   "<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>commentary "
                   "to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
                   "", prompt),
            "(So.)|f{\"a\": 1}");
  EXPECT_EQ(parsed("harmony", " to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "", prompt), "|f{}");
  EXPECT_EQ(parsed("harmony", " to=functions.<|channel|>commentary json<|message|>{}<|call|>", "", prompt), "{}");
  EXPECT_EQ(parsed("harmony",
                   "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant<|channel|>commentary "
                   "to=functions.f<|message|>not json<|call|>",
                   "", prompt),
            "I will look.not json");
  EXPECT_EQ(parsed("harmony", "no header at all", "", prompt), "no header at all");
  EXPECT_EQ(parsed("atem",
                   " to=self<|message|>So.<|eom|><|start|>assistant to=f<|message|><atem:function_calls>\n"
                   "<atem:invoke name=\"f\">\n<atem:parameter name=\"days\">3</atem:parameter>\n</atem:invoke>\n"
                   "</atem:function_calls>",
                   "", prompt),
            "(So.)|f{\"days\": 3}");
}

TEST(ChatOutput, MalformedCallsAreContent) {
  EXPECT_EQ(parsed("hermes", "a\n<tool_call>\nnot json\n</tool_call>\nb"), "a\n<tool_call>\nnot json\n</tool_call>\nb");
  EXPECT_EQ(parsed("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\""),
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\"");
  EXPECT_EQ(parsed("hermes", "<tool_call>{\"name\": 5}</tool_call>"), "<tool_call>{\"name\": 5}</tool_call>");
  EXPECT_EQ(parsed("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"),
            "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>");
  EXPECT_EQ(parsed("hermes", "<tool_call>x</tool_call><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"),
            "<tool_call>x</tool_call>|f{}");
  EXPECT_EQ(parsed("llama", "{\"answer\": 42}"), "{\"answer\": 42}");
  EXPECT_EQ(parsed("llama", "{not json"), "{not json");
  EXPECT_EQ(parsed("qwen-xml", "<tool_call>\n<function=f>\n<parameter=a>"), "<tool_call>\n<function=f>\n<parameter=a>");
  EXPECT_EQ(parsed("lfm2", "<|tool_call_start|>[f(1)]<|tool_call_end|>"), "<|tool_call_start|>[f(1)]<|tool_call_end|>");
  EXPECT_EQ(parsed("mistral", "[TOOL_CALLS]two words[ARGS]{}"), "[TOOL_CALLS]two words[ARGS]{}");
}

/// The text cut after each of its bytes: no output has a piece of a marker or of a call as content.
void check_cuts(std::string_view format, std::string_view text, std::string_view content) {
  const std::string words = chat_output_words_of(format, "<think>");
  size_t before = 0;
  for (size_t size = 0; size <= text.size(); ++size) {
    ChatOutputParser parser({words, "", kChatOutputTools});
    std::vector<ChatDelta> deltas;
    parser.push(text.substr(0, size), deltas);
    parser.finish(deltas, true);
    ChatOutput output;
    for (const ChatDelta& delta : deltas) output.add(delta);
    EXPECT_TRUE(content.starts_with(output.content)) << format << ": " << output.content;
    EXPECT_GE(output.tool_calls.size(), before) << format << ": " << text.substr(0, size);
    before = output.tool_calls.size();
    for (const ChatToolCall& call : output.tool_calls)
      EXPECT_TRUE(ChatOutputJson::accept(call.arguments)) << call.arguments;
  }
  EXPECT_EQ(before, 2U) << format;
}

TEST(ChatOutput, CutCallsLeaveNoPieces) {
  check_cuts("hermes",
             "Two.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>\n"
             "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
             "Two.\n");
  check_cuts("qwen-xml",
             "Two.<tool_call>\n<function=f>\n<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call>\n"
             "<tool_call>\n<function=f>\n</function>\n</tool_call>",
             "Two.");
  check_cuts("glm",
             "<tool_call>f\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n</tool_call>"
             "<tool_call>f\n</tool_call>",
             "");
  check_cuts("nemotron",
             "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"f\", \"arguments\": {\"days\": 1}}]"
             "</TOOLCALL>",
             "");
  check_cuts("deepseek",
             "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"days\": 1}<｜tool▁call▁end｜>"
             "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
             "");
  check_cuts("mistral", "Two.[TOOL_CALLS]f[ARGS]{\"days\": 1}[TOOL_CALLS]f[ARGS]{}", "Two.");
}

// The JSON of a call is whole before its closing marker.
TEST(ChatOutput, ACallCutInItsClosingMarkerIsACall) {
  const std::string words = chat_output_words_of("hermes", "");
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"days\": 1}}\n</tool_call>";
  for (const char* rest : {"", "\n", "\n<", "\n</tool", "\n</tool_call"}) {
    ChatOutputParser parser({words, "", kChatOutputTools});
    std::vector<ChatDelta> deltas;
    parser.push(call.substr(0, call.size() - 13) + rest, deltas);
    parser.finish(deltas, true);
    ASSERT_EQ(deltas.size(), 1U) << rest;
    EXPECT_EQ(deltas[0].call.arguments, "{\"days\": 1}");
  }
}

// Without tools the end of a text stays content even if the text was cut and a call might have followed.
TEST(ChatOutput, CutTextWithoutToolsStays) {
  ChatOutputParser parser({"<tool_call> <think>", "", ""});
  std::vector<ChatDelta> deltas;
  parser.push("if a <", deltas);
  parser.finish(deltas, true);
  ChatOutput output;
  for (const ChatDelta& delta : deltas) output.add(delta);
  EXPECT_EQ(output.content, "if a <");
}

TEST(ChatOutput, QwenCoderCallsWithoutTheirOpeningMarker) {
  const std::string call =
      "<function=f>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>";
  const std::string expected = "I will check.|f{\"city\": \"Paris\", \"days\": 3}";
  EXPECT_EQ(parsed("qwen-xml", "I will check.\n" + call + "\n</tool_call>"), expected);
  EXPECT_EQ(parsed("qwen-xml", "I will check.\n" + call), expected);
  EXPECT_EQ(parsed("qwen-xml", "See <function=g> in C."), "See <function=g> in C.");
}

// Values without quotes have the types of the tool's schema, wherever that says them.
TEST(ChatOutput, PlainValuesFollowTheSchema) {
  const auto value = [](std::string_view schema, std::string_view text) {
    const std::string tools = fmt::format(
        R"([{{"type": "function", "function": {{"name": "f", "parameters": {{"type": "object", "$defs": {{"s":
        {{"type": "string"}}}}, "properties": {{"zip": {}}}}}}}}}])",
        schema);
    const std::string words = chat_output_words_of("qwen-xml", "");
    const std::string call =
        fmt::format("<tool_call>\n<function=f>\n<parameter=zip>\n{}\n</parameter>\n</function>\n</tool_call>", text);
    const ChatOutput output = parse_chat_output({words, "", tools}, call);
    return output.tool_calls.empty() ? "" : ChatOutputJson::parse(output.tool_calls[0].arguments)["zip"].dump();
  };
  constexpr std::string_view kOptional = R"({"anyOf": [{"type": "string"}, {"type": "null"}]})";
  for (const char* text : {"12134", "true", "1e5", "[1]", "{\"a\": 1}"}) {
    const std::string expected = ChatOutputJson(text).dump();
    EXPECT_EQ(value(kOptional, text), expected);
    EXPECT_EQ(value(R"({"type": ["string", "null"]})", text), expected);
    EXPECT_EQ(value(R"({"$ref": "#/$defs/s"})", text), expected);
    EXPECT_EQ(value(R"({"allOf": [{"$ref": "#/$defs/s"}, {"minLength": 1}]})", text), expected);
  }
  EXPECT_EQ(value(R"({"const": "1"})", "1"), "\"1\"");
  EXPECT_EQ(value(R"({"enum": ["1", "2"]})", "1"), "\"1\"");
  EXPECT_EQ(value(kOptional, "null"), "null");
  EXPECT_EQ(value(R"({"anyOf": [{"type": "integer"}, {"type": "string"}]})", "12"), "12");
  EXPECT_EQ(value(R"({"type": "number"})", "1e5"), "100000.0");
  EXPECT_EQ(value("{}", "12"), "12");
  EXPECT_EQ(value("{}", "\"a\""), "\"\\\"a\\\"\"");
}

// JSON that a schema constrains is content, whatever its strings are.
TEST(ChatOutput, JsonHasNoMarkers) {
  const auto read = [](std::string_view format, std::string_view text, std::string_view tools = "") {
    const std::string words = chat_output_words_of(format, "<think>");
    return described(parse_chat_output({words, "", tools, ContentKind::kJson}, text));
  };
  EXPECT_EQ(read("hermes", "<think>So.</think>\n\n{\"a\": \"<think>\"}"), "(So.){\"a\": \"<think>\"}");
  EXPECT_EQ(read("hermes", "[\"<tool_call>\\\"\"]"), "[\"<tool_call>\\\"\"]");
  EXPECT_EQ(read("llama", "{\"name\": \"f\", \"parameters\": {}}"), "{\"name\": \"f\", \"parameters\": {}}");
  EXPECT_EQ(read("llama", "{\"name\": \"f\", \"parameters\": {}}", kChatOutputTools), "|f{}");
  EXPECT_EQ(read("command", "<|START_RESPONSE|>{\"a\": 1}<|END_RESPONSE|>"), "{\"a\": 1}");
  EXPECT_EQ(read("plain", "12"), "12");
}

TEST(ChatOutput, PartsTellTheAnswerFromTheReasoning) {
  const std::string words = chat_output_words_of("hermes", "<think>");
  const std::string text = "<think>a<b</think>Hello <b><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  for (const size_t step : {1U, 3U, 7U, 200U}) {
    ChatOutputParser parser({words, "", kChatOutputTools});
    std::vector<ChatDelta> deltas;
    std::string answer, other;
    size_t at = 0;
    const auto take = [&] {
      for (const ChatOutputParser::Part& part : parser.take_parts()) {
        (part.is_answer ? answer : other) += text.substr(at, part.bytes);
        at += part.bytes;
      }
    };
    for (size_t begin = 0; begin < text.size(); begin += step) {
      parser.push(std::string_view(text).substr(begin, step), deltas);
      take();
    }
    parser.finish(deltas);
    take();
    EXPECT_EQ(other, "<think>a<b</think>") << step;
    EXPECT_EQ(answer, text.substr(18)) << step;
  }
}

TEST(ChatOutput, TextArrivesAsItIsWritten) {
  ChatOutputParser parser({"<tool_call> <think>", "", ""});
  std::vector<ChatDelta> deltas;
  parser.push("Hel", deltas);
  parser.push("lo <", deltas);
  ASSERT_EQ(deltas.size(), 2u);
  EXPECT_EQ(deltas[0].text + deltas[1].text, "Hello");
  parser.push("b>", deltas);
  ASSERT_EQ(deltas.size(), 3u);
  EXPECT_EQ(deltas[2].text, " <b>");
}

// The deltas joined are the same for any pieces: over fragments of all formats in random order, whole and broken.
TEST(ChatOutput, DoesNotDependOnThePieces) {
  const char* const fragments[] = {
      "Hello ",
      "\n\n",
      " ",
      "<think>",
      "</think>",
      "<tool_call>",
      "</tool_call>",
      "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
      "{\"name\": \"f\", \"argu",
      "[TOOL_CALLS]",
      "f[ARGS]",
      "{\"a\": \"</tool_call>\"}",
      "<function=f>",
      "</function>",
      "<parameter=city>\nx\n</parameter>",
      "<｜tool▁calls▁begin｜>",
      "<｜tool▁call▁begin｜>",
      "f<｜tool▁sep｜>",
      "{}",
      "<｜tool▁call▁end｜>",
      "<|channel|>analysis<|message|>",
      "<|end|>",
      "<|start|>assistant",
      "<|channel|>commentary to=functions.f<|message|>",
      "<|tool_call_start|>[f(a=1)]",
      "<|tool_call_end|>",
      "é😀",
      "<arg_key>k</arg_key><arg_value>v</arg_value>",
      "<",
      "f",
      "<|python_tag|>",
      "[{\"name\": \"f\", \"arguments\": {}}]",
      "<|START_ACTION|>",
      "<|END_ACTION|>",
      "<invoke name=\"f\">",
      "</invoke>",
      "<|tool_call>call:f{a:<|\"|>",
      "<|\"|>}",
      "<tool_call|>",
      "functools",
      "a.call(b=2)",
      "]<]minimax[>[<tool_call>",
      "]<]minimax[>[</tool_call>",
      "<TOOLCALL>",
      "</TOOLCALL>",
      "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>",
      "<|tool_call_end|>",
      "<|tool_calls_section_begin|>",
      "<function name=\"f\">",
      "<param name=\"a\">1</param>",
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"}{\"}}</tool_call>",
      "[TOOL_CALLS]f[ARGS]{\"a\": 1}",
      "<tool_call>\n<function=f>\n<parameter=city>\n</b>\n</parameter>\n</function>\n</tool_call>",
      "<tool_call>f\n<arg_key>k</arg_key>\n<arg_value>v</arg_value>\n</tool_call>",
      "<function=f>{\"a\": 1}</function>",
      "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>",
      "<|tool_call>call:f{a:<|\"|>b<|\"|>}<tool_call|>",
      "<|tool_call_start|>[f(a=1), g(b='x')]<|tool_call_end|>",
      "<|START_ACTION|>[{\"tool_name\": \"f\", \"parameters\": {}}]<|END_ACTION|>",
      "<|channel|>commentary to=functions.f<|message|>{}<|call|>",
      "functools[{\"name\": \"f\", \"arguments\": {}}]"};
  const char* const formats[] = {
      "plain",    "hermes",  "qwen-xml", "mistral",        "deepseek",       "harmony",     "lfm2", "glm",
      "llama",    "command", "gemma",    "minimax-nested", "minimax-invoke", "functionary", "kimi", "functools",
      "nemotron", "minicpm", "dsml"};
  std::mt19937 random(7);
  const auto pick = [&](size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random); };
  size_t with_calls = 0, with_reasoning = 0;
  for (int round = 0; round < 6000; ++round) {
    const std::string words = chat_output_words_of(formats[pick(std::size(formats))], "<think>");
    std::string text;
    for (size_t i = pick(9) + 1; i > 0; --i) text += fragments[pick(std::size(fragments))];
    const ChatOutputOptions options{words, round % 3 ? "" : "<|start|>assistant", kChatOutputTools};
    const ChatOutput whole = parse_chat_output(options, text);
    ChatOutputParser parser(options);
    ChatOutput joined;
    std::vector<ChatDelta> deltas;
    const size_t longest = pick(12) + 1;
    for (size_t at = 0; at < text.size();) {
      const size_t size = std::min(pick(longest) + 1, text.size() - at);
      parser.push(text.substr(at, size), deltas);
      at += size;
    }
    parser.finish(deltas);
    for (const ChatDelta& delta : deltas) joined.add(delta);
    ASSERT_EQ(described(joined), described(whole)) << words << "\n" << text;
    for (size_t i = 0; i < whole.tool_calls.size(); ++i) {
      EXPECT_FALSE(whole.tool_calls[i].name.empty());
      EXPECT_TRUE(ChatOutputJson::accept(whole.tool_calls[i].arguments)) << whole.tool_calls[i].arguments;
    }
    with_calls += whole.tool_calls.size();
    with_reasoning += !whole.reasoning.empty();
  }
  EXPECT_GT(with_calls, 200u);
  EXPECT_GT(with_reasoning, 300u);
}

// The templates' own rendering of an assistant message, read back.
class Templates : public ::testing::TestWithParam<std::string> {};

const char* const kCallsMessages = R"([{"role": "user", "content": "Weather?"},
  {"role": "assistant", "content": null, "tool_calls": [{"id": "abcdefgh1", "type": "function",
  "function": {"name": "f",
    "arguments": {"city": "Zürich \"x\"", "days": 3, "where": {"lat": 1.5, "tags": ["a", "b"]}}}}]}])";

std::string chat_output_rendered(const ChatTemplate& compiled, std::string_view messages, bool prompt) {
  const auto text = compiled.render(
      {messages, kChatOutputTools, R"({"functions": "[]", "datetime": "", "enable_thinking": true})", prompt});
  return text.ok() ? *text : "";
}

TEST_P(Templates, CallsReadBack) {
  std::ifstream file(GetParam());
  const std::string source((std::istreambuf_iterator<char>(file)), {});
  ChatTemplateOptions options;
  options.special_tokens_json = R"({"bos_token": "<s>", "eos_token": "</s>"})";
  const auto compiled = ChatTemplate::compile(source, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  const ChatOutputFormat& format = chat_output_format(source);
  const ChatOutputJson messages = ChatOutputJson::parse(kCallsMessages);
  // The prompt that the answer follows: with the beginning of the answer where the template renders it so.
  std::string whole, prompt;
  for (const bool has_text : {false, true})
    for (const ChatOutputJson& content : {ChatOutputJson(""), ChatOutputJson()}) {
      ChatOutputJson written = messages;
      written[1]["content"] = content;
      ChatOutputJson& arguments = written[1]["tool_calls"][0]["function"]["arguments"];
      if (has_text) arguments = arguments.dump();
      if (whole.find("Zürich") == whole.npos) whole = chat_output_rendered(*compiled, written.dump(), false);
    }
  if (whole.find("Zürich") == whole.npos || format.name == std::string_view("plain"))
    GTEST_SKIP() << "the template renders no tool calls of this conversation";
  for (const bool begins : {true, false}) {
    prompt = chat_output_rendered(*compiled, ChatOutputJson::array({messages[0]}).dump(), begins);
    if (whole.starts_with(prompt)) break;
  }
  if (!whole.starts_with(prompt)) GTEST_SKIP() << "the template renders earlier messages differently";
  std::string answer = whole.substr(prompt.size());
  if (format.has_channels) answer.erase(0, answer.find("<|start|>assistant") + 18);
  const std::string header = format.has_channels ? "<|start|>assistant" : "";
  const ChatOutput output =
      parse_chat_output({source, format.has_channels ? header : prompt, kChatOutputTools}, answer);
  ASSERT_EQ(output.tool_calls.size(), 1u) << format.name << "\n" << answer;
  EXPECT_EQ(output.tool_calls[0].name, "f");
  EXPECT_EQ(ChatOutputJson::parse(output.tool_calls[0].arguments),
            ChatOutputJson::parse(kCallsMessages)[1]["tool_calls"][0]["function"]["arguments"])
      << output.tool_calls[0].arguments << "\n"
      << answer;
  EXPECT_THAT(output.content, ::testing::Not(::testing::HasSubstr("Zürich")));
}

std::vector<std::string> template_files() {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(REDLINE_SHARED_DIR "/models/chat-templates", error))
    if (entry.path().extension() == ".jinja") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = std::filesystem::path(info.param).stem().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Templates);
INSTANTIATE_TEST_SUITE_P(ChatOutput, Templates, ::testing::ValuesIn(template_files()), test_name);

}  // namespace
}  // namespace redline
