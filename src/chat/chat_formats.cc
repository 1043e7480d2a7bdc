// The formats of the families, the more specific ones first. A new family is a row here.
#include "chat/chat_output.h"

#include <algorithm>

namespace redline {
namespace {

constexpr ToolCallSyntax json_calls(const char* begin, const char* end) { return {begin, end, read_json_calls}; }
constexpr ToolCallSyntax json_lists(const char* begin, const char* end) {
  ToolCallSyntax syntax = json_calls(begin, end);
  syntax.writes_list = true;
  return syntax;
}
constexpr ToolCallSyntax json_parameters(ToolCallSyntax syntax, const char* name) {
  syntax.first = "parameters";
  syntax.second = name;
  return syntax;
}
// Returns the syntax for calls without an opening marker, which models of the family leave out at times. only_tools
// makes the reader accept only names of tools that the request has.
constexpr ToolCallSyntax only_tools(ToolCallSyntax syntax) {
  syntax.only_tools = true;
  return syntax;
}

constexpr ToolCallSyntax kCommandCalls = json_parameters(json_lists("<|START_ACTION|>", "<|END_ACTION|>"), "tool_name");

constexpr ReasoningMarkers kThinkTags = {"<think>", "</think>", "\n\n"};
// The models with these three efforts cannot turn their thinking off.
constexpr ThinkingSwitch kThreeEfforts = {"reasoning_effort", "", "", "\"low\"", "\"high\""};

const ChatOutputFormat kFormats[] = {
    {.name = "harmony",
     .words = {"<|channel|>", "<|message|>", "analysis"},
     .has_channels = true,
     .answer_begin = "<|channel|>final<|message|>",
     .reasoning = {"<|channel|>analysis<|message|>", "<|end|>", "", "<|start|>assistant"},
     .thinking = kThreeEfforts},
    {.name = "atem",
     .words = {"<atem:function_calls>"},
     .syntaxes = {{"<atem:function_calls>", "</atem:function_calls>", read_xml_calls, "<atem:invoke name=\"",
                   "</atem:invoke>", "<atem:parameter name=\"", "</atem:parameter>"}},
     .has_channels = true,
     .channel_call = "<atem:function_calls>",
     .answer_begin = " to=user<|message|>",
     .reasoning = {" to=self<|message|>", "<|eom|>", "", "<|start|>assistant"}},
    {.name = "gemma",
     .words = {"<|tool_call>call:"},
     .syntaxes = {{"<|tool_call>call:", "<tool_call|>", read_gemma_call, "<|\"|>"}},
     .reasoning = {"<|channel>thought", "<channel|>", ""}},
    {.name = "minimax-nested",
     .words = {"]<]minimax[>["},
     .syntaxes = {{"]<]minimax[>[<tool_call>", "]<]minimax[>[</tool_call>", read_nested_xml, "]<]minimax[>["}},
     .reasoning = {"<mm:think>", "</mm:think>", ""},
     .thinking = {"thinking_mode", "\"disabled\"", "\"enabled\""}},
    {.name = "minimax-invoke",
     .words = {"<minimax:tool_call>"},
     .syntaxes = {{"<minimax:tool_call>", "</minimax:tool_call>", read_xml_calls, "<invoke name=\"", "</invoke>",
                   "<parameter name=\"", "</parameter>"}}},
    {.name = "dsml",
     .words = {"｜DSML｜"},
     .syntaxes = {{"<｜DSML｜function_calls>", "</｜DSML｜function_calls>", read_xml_calls, "<｜DSML｜invoke name=\"",
                   "</｜DSML｜invoke>", "<｜DSML｜parameter name=\"", "</｜DSML｜parameter>"},
                  {"<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", read_xml_calls, "<｜DSML｜invoke name=\"",
                   "</｜DSML｜invoke>", "<｜DSML｜parameter name=\"", "</｜DSML｜parameter>"}}},
    {.name = "kimi",
     .words = {"<|tool_calls_section_begin|>"},
     .syntaxes = {{"<|tool_call_begin|>", "<|tool_call_end|>", read_named_json, "<|tool_call_argument_begin|>"}},
     .ignored = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
     .calls_begin = "<|tool_calls_section_begin|>",
     .calls_end = "<|tool_calls_section_end|>"},
    {.name = "deepseek-fenced",
     .words = {"<｜tool▁call▁begin｜>", "```json"},
     .syntaxes = {{"<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", read_named_json, "\n```json\n", "<｜tool▁sep｜>"}},
     .ignored = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
     .calls_begin = "<｜tool▁calls▁begin｜>",
     .calls_end = "<｜tool▁calls▁end｜>"},
    {.name = "deepseek",
     .words = {"<｜tool▁call▁begin｜>"},
     .syntaxes = {{"<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", read_named_json, "<｜tool▁sep｜>"}},
     .ignored = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
     .calls_begin = "<｜tool▁calls▁begin｜>",
     .calls_end = "<｜tool▁calls▁end｜>"},
    {.name = "hunyuan",
     .words = {"<tool_call{}>", ":opensource"},
     .syntaxes = {{"<tool_call:opensource>", "</tool_call:opensource>", read_key_value_call, ":opensource"}},
     .ignored = {"<tool_calls:opensource>", "</tool_calls:opensource>"},
     .calls_begin = "<tool_calls:opensource>\n",
     .calls_end = "\n</tool_calls:opensource>",
     .reasoning = {"<think:opensource>", "</think:opensource>", ""},
     .thinking = {"reasoning_effort", "\"no_think\"", "\"high\"", "\"low\"", "\"high\""}},
    {.name = "seed",
     .words = {"<seed:tool_call>"},
     .syntaxes = {{"<seed:tool_call>", "</seed:tool_call>", read_xml_calls, "<function=", "</function>",
                   "<parameter=", "</parameter>"}},
     .reasoning = {"<seed:think>", "</seed:think>", ""},
     .thinking = {"thinking_budget", "0", "-1"}},
    {.name = "qwen-xml",
     .words = {"<function=", "<parameter="},
     .syntaxes = {{"<tool_call>", "</tool_call>", read_xml_calls, "<function=", "</function>",
                   "<parameter=", "</parameter>"},
                  only_tools({"<function=", "</tool_call>", read_xml_calls, "<function=", "</function>",
                              "<parameter=", "</parameter>"})}},
    {.name = "functionary",
     .words = {"<function="},
     .syntaxes = {{"<function=", "</function>", read_named_json, ">"}, json_calls("<|python_tag|>", "")}},
    {.name = "minicpm",
     .words = {"<function name=\"", "<param name=\""},
     .syntaxes = {{"<function name=\"", "", read_xml_calls, "<function name=\"", "</function>", "<param name=\"",
                   "</param>"}}},
    {.name = "glm",
     .words = {"<arg_key>", "<arg_value>"},
     .syntaxes = {{"<tool_call>", "</tool_call>", read_key_value_call}}},
    {.name = "command",
     .words = {"<|START_ACTION|>", "<|START_RESPONSE|>"},
     .syntaxes = {kCommandCalls},
     .ignored = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>", "<|START_OF_TURN_TOKEN|>",
                 "<|CHATBOT_TOKEN|>"},
     .answer_begin = "<|START_RESPONSE|>",
     .answer_end = "<|END_RESPONSE|>",
     .reasoning = {"<|START_THINKING|>", "<|END_THINKING|>", ""}},
    {.name = "command-text",
     .words = {"<|START_ACTION|>"},
     .syntaxes = {kCommandCalls},
     .ignored = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>", "<|START_OF_TURN_TOKEN|>",
                 "<|CHATBOT_TOKEN|>"},
     .answer_begin = "<|START_TEXT|>",
     .answer_end = "<|END_TEXT|>",
     .reasoning = {"<|START_THINKING|>", "<|END_THINKING|>", ""},
     .thinking = {"reasoning", "false", "true"}},
    {.name = "apertus",
     .words = {"<|tools_prefix|>"},
     .syntaxes = {{"<|tools_prefix|>", "<|tools_suffix|>", read_keyed_calls}},
     .reasoning = {"<|inner_prefix|>", "<|inner_suffix|>", ""}},
    {.name = "solar",
     .words = {"<|tool_call:begin|>", "<|tool_call:args|>"},
     .syntaxes = {{"<|tool_call:begin|>", "<|tool_call:end|>", read_named_json, "<|tool_call:args|>",
                   "<|tool_call:name|>"}},
     .ignored = {"<|begin|>assistant", "<|content|>", "<|tool_calls|>", "<|calls|>", "<|end|>"},
     .calls_begin = "<|tool_calls|>",
     .calls_end = "<|calls|>",
     .answer_begin = "<|content|>",
     .answer_end = "<|end|>",
     .reasoning = {"<|think|>", "<|end|>", "", "<|begin|>assistant", "<|think|><|end|><|begin|>assistant"},
     .thinking = {"reasoning_effort", "\"minimal\"", "\"high\""}},
    {.name = "lfm2",
     .words = {"<|tool_call_start|>"},
     .syntaxes = {{"<|tool_call_start|>", "<|tool_call_end|>", read_python_calls}}},
    {.name = "lfm2",
     .words = {"<|tool_list_start|>"},
     .syntaxes = {{"<|tool_call_start|>", "<|tool_call_end|>", read_python_calls}}},
    {.name = "gigachat", .words = {"<|function_call|>"}, .syntaxes = {json_calls("<|function_call|>", "")}},
    {.name = "gigachat-role",
     .words = {"function call", "<|role_sep|>"},
     .syntaxes = {json_calls("function call<|role_sep|>\n", "")},
     .ignored = {"assistant<|role_sep|>\n", "<|message_sep|>"}},
    {.name = "nemotron",
     .words = {"<TOOLCALL>"},
     .syntaxes = {json_lists("<TOOLCALL>", "</TOOLCALL>")},
     .reasoning = kThinkTags,
     .thinking = {"/no_think", "/no_think", "/think"}},
    {.name = "tool-calls",
     .words = {"<tool_calls>"},
     .syntaxes = {json_lists("<tool_calls>", "</tool_calls>")},
     .ignored = {"[END FINAL RESPONSE]"},
     .answer_end = "[END FINAL RESPONSE]",
     .reasoning = {"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", "\n"}},
    {.name = "functools", .words = {"functools["}, .syntaxes = {json_lists("functools", "")}},
    {.name = "phi",
     .words = {"<|tool_call|>", "<|/tool_call|>"},
     .syntaxes = {json_lists("<|tool_call|>", "<|/tool_call|>")}},
    {.name = "granite", .words = {"<|tool_call|>"}, .syntaxes = {json_lists("<|tool_call|>", "")}},
    {.name = "mistral",
     .words = {"[TOOL_CALLS]"},
     .syntaxes = {{"[TOOL_CALLS]", "", read_named_json, "[ARGS]", "[CALL_ID]"}},
     .reasoning = {"[THINK]", "[/THINK]", ""}},
    {.name = "hermes", .words = {"<tool_call>"}, .syntaxes = {json_calls("<tool_call>", "</tool_call>")}},
    {.name = "llama",
     .words = {"<|start_header_id|>", "JSON for a function call"},
     .syntaxes = {{"<|python_tag|>", "", read_python_calls}, json_parameters(json_calls("", ""), "name")}},
    {.name = "plain"},
};

// The reasoning markers of families that share their call syntax with others, so that no row of kFormats has them.
const ReasoningMarkers kCommonReasoning[] = {
    {"<seed:think>", "</seed:think>", ""},
    {"<mm:think>", "</mm:think>", "\n\n"},
    {"[THINK]", "[/THINK]", ""},
    {"<|START_THINKING|>", "<|END_THINKING|>", ""},
    {"<|inner_prefix|>", "<|inner_suffix|>"},
    {"<|channel>thought", "<channel|>"},
    {"<|think|>", "<|end|>", "", "<|begin|>assistant", "<|think|><|end|><|begin|>assistant"},
    {"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", "\n"},
    kThinkTags,
};
const ThinkingSwitch kCommonSwitches[] = {
    {"enable_thinking", "false", "true"},
    {"thinking_budget", "0", "-1"},
    {"thinking_mode", "\"disabled\"", "\"enabled\""},
    {"thinking", "false", "true"},
    {"enable_reasoning", "false", "true"},
    {"reasoning", "false", "true"},
    {"reasoning_effort", "\"none\"", "\"high\""},
    {"/no_think", "/no_think", "/think"},
    {"/nothink", "/nothink", "/think"},
};

}  // namespace

const ChatOutputFormat& chat_output_format(std::string_view chat_template) {
  for (const ChatOutputFormat& format : kFormats) {
    const bool fits = std::all_of(std::begin(format.words), std::end(format.words), [&](const char* word) {
      return !word || chat_template.find(word) != std::string::npos;
    });
    if (fits) return format;
  }
  return std::end(kFormats)[-1];
}

const ChatOutputFormat& tool_call_format(std::string_view chat_template) {
  const ChatOutputFormat& own = chat_output_format(chat_template);
  return own.has_channels || own.syntaxes[0].read ? own : *find_chat_output_format("hermes");
}

const ChatOutputFormat* find_chat_output_format(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                   [&](const ChatOutputFormat& format) { return format.name == name; });
  return found == std::end(kFormats) ? nullptr : found;
}

ReasoningMarkers reasoning_markers(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != std::string::npos; };
  const ChatOutputFormat& format = chat_output_format(chat_template);
  // The templates of these families compose the markers from parts, so the text of the markers is not found in them.
  if (format.has_channels || has("<think{}>")) return format.reasoning;
  const auto fits = [&](const ReasoningMarkers& markers) {
    if (!*markers.open) return false;
    // <|end|> alone is no sign, because it also ends the turns of Phi.
    return has(markers.open) || (std::string_view(markers.close) != "<|end|>" && has(markers.close));
  };
  if (fits(format.reasoning)) return format.reasoning;
  const auto* found = std::find_if(std::begin(kCommonReasoning), std::end(kCommonReasoning), fits);
  return found == std::end(kCommonReasoning) ? ReasoningMarkers{} : *found;
}

std::vector<ThinkingSwitch> possible_thinking_switches(std::string_view chat_template) {
  std::vector<ThinkingSwitch> switches;
  const auto add = [&](const ThinkingSwitch& one) {
    if (*one.name && chat_template.find(one.name) != std::string::npos) switches.push_back(one);
  };
  add(chat_output_format(chat_template).thinking);
  for (const ThinkingSwitch& one : kCommonSwitches) add(one);
  return switches;
}

AnswerPlace answer_place(std::string_view chat_template, std::string_view prompt) {
  if (chat_output_format(chat_template).has_channels) {
    const size_t start = prompt.rfind("<|start|>");
    const bool is_header =
        start != std::string_view::npos && prompt.find("<|message|>", start) == std::string_view::npos;
    return is_header ? AnswerPlace::kHeader : AnswerPlace::kAnswer;
  }
  const ReasoningMarkers markers = reasoning_markers(chat_template);
  if (!*markers.open) return AnswerPlace::kContent;
  const auto bare = [](std::string_view text) { return text.substr(0, text.find_last_not_of(" \t\r\n") + 1); };
  const std::string_view end = bare(prompt);
  if (end.ends_with(bare(markers.open))) return AnswerPlace::kReasoning;
  return end.ends_with(*markers.skipped ? markers.skipped : markers.close) ? AnswerPlace::kContent
                                                                           : AnswerPlace::kAnswer;
}

}  // namespace redline
