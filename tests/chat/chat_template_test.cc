// Chat templates of models: where they are found, their variables, and errors. That they render like transformers is
// test_chat_templates.py.
#include "chat/chat_template.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

namespace redline {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kHello = R"([{"role": "user", "content": "Hi"}])";

std::string chat_template_rendered(const std::string& source, const ChatInput& input,
                                   ChatTemplateOptions options = {}) {
  const auto compiled = ChatTemplate::compile(source, std::move(options));
  if (!compiled.ok()) return "error: " + compiled.status().message();
  const auto text = compiled->render(input);
  return text.ok() ? *text : "error: " + text.status().message();
}

TEST(ChatTemplate, HasTheVariablesOfTransformers) {
  ChatTemplateOptions options;
  options.special_tokens_json = R"({"bos_token": "<s>"})";
  EXPECT_EQ(chat_template_rendered("{{ bos_token }}{{ messages[0].content }}{{ tools is none }}{{ documents is none }}"
                                   "{{ add_generation_prompt }}{{ eos_token is defined }}",
                                   {kHello, "", ""}, options),
            "<s>HiTrueTrueTrueFalse");
  EXPECT_EQ(
      chat_template_rendered("{{ tools[0].name }}{{ enable_thinking }}{{ add_generation_prompt }}{{ documents }}",
                             {kHello, R"([{"name": "f"}])", R"({"enable_thinking": false, "documents": []})", false}),
      "fFalseFalse[]");
  EXPECT_EQ(chat_template_rendered("{{ bos_token }}", {kHello, "", R"({"bos_token": "<bos>"})"}, options), "<bos>");
}

TEST(ChatTemplate, TheTemplateForToolsIsTakenWithTools) {
  ChatTemplateOptions options;
  options.tool_use = "with {{ tools|length }}";
  EXPECT_EQ(chat_template_rendered("plain", {kHello, "", ""}, options), "plain");
  EXPECT_EQ(chat_template_rendered("plain", {kHello, "[1, 2]", ""}, options), "with 2");
}

TEST(ChatTemplate, KeepsTheOrderOfMembers) {
  EXPECT_EQ(
      chat_template_rendered("{{ messages[0]|tojson }}", {R"([{"z": 1, "a": {"y": 2, "b": 3}, "z2": 0.50}])", "", ""}),
      R"({"z": 1, "a": {"y": 2, "b": 3}, "z2": 0.5})");
  // As in Python, a member that occurs twice stays where it was first and has the last value.
  EXPECT_EQ(chat_template_rendered("{{ messages[0] }}", {R"([{"a": 1, "b": 2, "a": 3}])", "", ""}), "{'a': 3, 'b': 2}");
}

TEST(ChatTemplate, InputErrorsNameTheInput) {
  EXPECT_THAT(chat_template_rendered("x", {"[", "", ""}), HasSubstr("messages: not JSON"));
  EXPECT_THAT(chat_template_rendered("x", {std::string_view("[]\0]", 4), "", ""}), HasSubstr("zero byte"));
  EXPECT_THAT(chat_template_rendered("x", {"{}", "", ""}), HasSubstr("messages: expected a list, got dict"));
  EXPECT_THAT(chat_template_rendered("x", {kHello, "5", ""}), HasSubstr("tools: expected a list, got int"));
  EXPECT_THAT(chat_template_rendered("x", {kHello, "", "[]"}),
              HasSubstr("template variables: expected an object, got list"));
  EXPECT_THAT(chat_template_rendered("x", {std::string(100000, '['), "", ""}), HasSubstr("nested deeper"));
  EXPECT_EQ(chat_template_rendered("{{ 1 ", {kHello, "", ""}),
            "error: chat template: line 1, column 1: this expression has no end '}}'");
  EXPECT_EQ(chat_template_rendered("\n{{ raise_exception('Roles must alternate') }}", {kHello, "", ""}),
            "error: chat template: line 2, column 19: Roles must alternate");
}

TEST(ChatTemplate, ArgumentsBecomeWhatTheTemplateTakes) {
  const auto adapted = [](const std::string& how, std::string_view arguments) {
    const auto compiled =
        ChatTemplate::compile("{% for m in messages %}{% for c in m.tool_calls %}" + how + "{% endfor %}{% endfor %}");
    EXPECT_TRUE(compiled.ok()) << compiled.status().message();
    const std::string messages = fmt::format(
        R"([{{"role": "assistant", "tool_calls": [{{"function": {{"name": "f", "arguments": {}}}}}]}}])", arguments);
    ChatInput input{messages, "", ""};
    input.adapt_arguments = true;
    const auto text = compiled->render(input);
    return std::string(compiled->argument_form()) + ": " + (text.ok() ? *text : text.status().message());
  };
  const std::string text = R"("{\"b\": 1, \"a\": [2]}")", object = R"({"b": 1, "a": [2]})";
  const std::string items = "{% for k, v in c.function.arguments|items %}{{ k }}={{ v }};{% endfor %}";
  EXPECT_EQ(adapted(items, text), "object: b=1;a=[2];");
  EXPECT_EQ(adapted(items, object), "object: b=1;a=[2];");
  EXPECT_EQ(adapted(items, R"("")"), "object: ");
  EXPECT_EQ(adapted("{{ '' + c.function.arguments }}", object), "text: " + object);
  EXPECT_EQ(adapted("{{ '' + c.function.arguments }}", text), "text: " + object);
  EXPECT_EQ(
      adapted("{{ c.function.arguments if c.function.arguments is string else c.function.arguments|tojson }}", text),
      "object: " + object);
  EXPECT_EQ(adapted("{{ c.function.arguments }}", object), "text: " + object);
  EXPECT_THAT(adapted(items, R"("no JSON")"), HasSubstr("Can only get item pairs from a mapping"));
  EXPECT_EQ(adapted("{{ c.function.name }}", text), ": f");
}

TEST(ChatTemplate, RendersInSeveralThreads) {
  const auto compiled = ChatTemplate::compile(
      "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t ~ m.content|upper ~ 'é'|length %}{% "
      "endfor "
      "%}{{ ns.t }}");
  ASSERT_TRUE(compiled.ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) EXPECT_EQ(compiled->render({kHello, "", ""}).value(), "HI1");
    });
  for (std::thread& thread : threads) thread.join();
}

class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / ("redline_chat_" + std::to_string(getpid()));
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void write(const char* name, std::string_view text) { std::ofstream(path_ / name) << text; }
  ChatTemplateSource source() { return chat_template_from_folder(path_.string()).value(); }
  std::filesystem::path path_;
};

TEST_F(Folder, TemplateOfTokenizerConfig) {
  write("tokenizer_config.json", R"({"chat_template": "T", "bos_token": {"content": "<s>"}, "eos_token": "</s>",
    "pad_token": null, "additional_special_tokens": ["<a>", {"content": "<b>"}],
    "extra_special_tokens": {"image_token": "<i>"}})");
  EXPECT_EQ(source().text, "T");
  EXPECT_EQ(source().tool_use, "");
  EXPECT_EQ(source().special_tokens_json,
            R"({"additional_special_tokens":["<a>","<b>"],"bos_token":"<s>","eos_token":"</s>","image_token":"<i>"})");
}

TEST_F(Folder, NamedTemplates) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "D"},
    {"name": "tool_use", "template": "U"}, {"name": "rag", "template": "R"}]})");
  EXPECT_EQ(source().text, "D");
  EXPECT_EQ(source().tool_use, "U");
}

TEST_F(Folder, TemplatesInFilesOfTheirOwn) {
  write("chat_template.json", R"({"chat_template": "J"})");
  EXPECT_EQ(source().text, "J");
  write("tokenizer_config.json", R"({"chat_template": "T"})");
  EXPECT_EQ(source().text, "T");
  write("chat_template.jinja", "F");
  EXPECT_EQ(source().text, "F");
}

TEST_F(Folder, NoTemplate) { EXPECT_EQ(source().text, ""); }

TEST(ChatTemplate, BuiltinsRender) {
  const ChatInput input{R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
    {"role": "assistant", "content": "A"}, {"role": "user", "content": "V"}])",
                        "", ""};
  for (const std::string& name : builtin_chat_template_names()) {
    SCOPED_TRACE(name);
    const std::string text = chat_template_rendered(read_chat_template(name).value(), input);
    size_t at = 0;
    for (const char* part : {"S", "U", "A", "V"}) {
      at = text.find(part, at);
      ASSERT_NE(at, std::string::npos) << text;
      ++at;
    }
  }
  EXPECT_EQ(chat_template_rendered(builtin_chat_template("chatml"), input),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
            "<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(chat_template_rendered(builtin_chat_template("llama2"), input),
            "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A </s><s>[INST] V [/INST]");
  EXPECT_EQ(chat_template_rendered(builtin_chat_template("gemma"), input),
            "<bos><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n"
            "<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_THAT(read_chat_template("nothing").status().message(), HasSubstr("chatml, llama2"));
}

// Which variable, or which word of the system message, turns the thinking of a template off and on.
TEST(ChatTemplate, ThinkingSwitchesOfTheSharedTemplates) {
  const std::map<std::string, std::string> switches = {
      {"Apertus-8B-Instruct", "enable_thinking"},
      {"ByteDance-Seed-OSS", "thinking_budget"},
      {"Cohere2MoE", "reasoning"},
      {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "enable_thinking"},
      {"GLM-4.6", "enable_thinking"},
      {"MiniMax-M3", "thinking_mode"},
      {"NVIDIA-Nemotron-Nano-v2", "/no_think"},
      {"Qwen-QwQ-32B", "enable_thinking"},
      {"Qwen3.5-4B", "enable_thinking"},
      {"deepseek-ai-DeepSeek-V3.1", "enable_thinking"},
      {"deepseek-ai-DeepSeek-V3.2", "enable_thinking"},
      {"deepseek-ai-DeepSeek-V4", "enable_thinking"},
      {"google-gemma-4-31B-it", "enable_thinking"},
      {"google-gemma-4-31B-it-interleaved", "enable_thinking"},
      {"llama-cpp-rwkv-world", "enable_thinking"},
      {"openbmb-MiniCPM5-1B", "enable_thinking"},
      {"poolside-Laguna-S-2.1", "enable_thinking"},
      {"poolside-Laguna-XS.2", "enable_thinking"},
      {"tencent-Hy3", "reasoning_effort"},
      {"upstage-Solar-Open-100B", "reasoning_effort"},
  };
  const std::filesystem::path folder = REDLINE_SOURCE_DIR "/../shared/models/chat-templates";
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) GTEST_SKIP() << "../shared/models/chat-templates is not there";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    std::ifstream file(entry.path());
    const std::string name = entry.path().stem().string(), text{std::istreambuf_iterator<char>(file), {}};
    ChatTemplateOptions options;
    options.special_tokens_json = R"({"bos_token": "<s>", "eos_token": "</s>"})";
    const auto compiled = ChatTemplate::compile(text, options);
    ASSERT_TRUE(compiled.ok()) << name;
    constexpr std::string_view kMessages = R"([{"role": "user", "content": "u"}])";
    if (!compiled->render({kMessages, "", ""}).ok()) continue;  // a template for tools only
    const auto found = switches.find(name);
    EXPECT_EQ(compiled->thinking_switch(), found == switches.end() ? "" : found->second) << name;
    for (const char* level : {"none", "off", "on", "auto", "minimal", "low", "medium", "high", "xhigh", "max"}) {
      ChatInput input{kMessages, "", ""};
      input.thinking = level;
      const auto prompt = compiled->render(input);
      EXPECT_TRUE(prompt.ok()) << name << ", " << level << ": " << prompt.status().to_string();
    }
  }
}

TEST(ChatTemplate, ThinkingSetsTheSwitch) {
  const auto rendered = [](std::string_view source, std::string_view level, std::string_view variables = "",
                           std::string_view messages = R"([{"role": "user", "content": "u"}])") {
    const auto compiled = ChatTemplate::compile(std::string(source));
    EXPECT_TRUE(compiled.ok()) << compiled.status().to_string();
    ChatInput input{messages, "", variables};
    input.thinking = level;
    const auto text = compiled->render(input);
    return text.ok() ? *text : text.status().message();
  };
  constexpr std::string_view kVariable = "{{ 'off' if enable_thinking is false else 'on' }} {{ reasoning_effort }}";
  EXPECT_EQ(rendered(kVariable, ""), "on ");
  EXPECT_EQ(rendered(kVariable, "none"), "off ");
  EXPECT_EQ(rendered(kVariable, "low"), "on low");
  EXPECT_EQ(rendered(kVariable, "none", R"({"enable_thinking": true})"), "on ") << "the caller's variables go first";
  EXPECT_EQ(rendered(kVariable, "much"),
            "thinking: expected one of none, off, on, minimal, low, medium, high, xhigh, max, auto, got \"much\"");
  constexpr std::string_view kWord =
      "{% for m in messages %}<{{ m.content | replace('/no_think', '') }}>{% endfor %}{{ 'off' if "
      "'/no_think' in messages[0].content else 'on' }}";
  EXPECT_EQ(rendered(kWord, "none"), "<><u>off");
  EXPECT_EQ(rendered(kWord, "none", "", R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])"),
            "<s\n><u>off");
  constexpr std::string_view kHarmony = "<|channel|> <|message|> analysis {{ reasoning_effort }}";
  EXPECT_EQ(rendered(kHarmony, "xhigh"), "<|channel|> <|message|> analysis high");
  EXPECT_EQ(rendered(kHarmony, "medium"), "<|channel|> <|message|> analysis medium");
  EXPECT_EQ(ChatTemplate::compile(std::string(kHarmony))->thinking_switch(), "");
}

TEST(ChatTemplate, TellsWhetherItWritesTools) {
  EXPECT_TRUE(ChatTemplate::compile("{{ tools | tojson }}")->writes_tools());
  EXPECT_FALSE(ChatTemplate::compile("{% if tools %}{{ messages[0].content }}{% endif %}")->writes_tools());
  EXPECT_FALSE(ChatTemplate::compile("{{ messages[0].content }}")->writes_tools());
}

}  // namespace
}  // namespace redline
