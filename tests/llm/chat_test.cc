// The engine's side of chat templates: which template it takes, and what it says without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "redline/text.h"
#include "support/bundled.h"
#include "support/temporary_folder.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

constexpr ChatInput kHello{R"([{"role": "user", "content": "Hi"}])", "", ""};

TEST(EngineChat, RendersWithTheTemplateOfTheModel) {
  for (const std::string& path : {kTales, std::string(REDLINE_TALES_GGUF)}) {
    SCOPED_TRACE(path);
    const auto engine = TextEngine::open(path);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    EXPECT_TRUE((*engine)->info().has_chat_template);
    EXPECT_EQ((*engine)->render_chat(kHello).value(),
              "<|endoftext|><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_THAT((*engine)->render_chat({"5", "", ""}).status().message(), HasSubstr("messages: expected a list"));
  }
}

TEST(EngineChat, TakesAnotherTemplate) {
  TextEngineOptions options;
  options.chat_template = "vicuna";
  EXPECT_EQ(TextEngine::open(kTales, options).value()->render_chat(kHello).value(), "USER: Hi\nASSISTANT:");
  options.chat_template = "no such template";
  EXPECT_THAT(TextEngine::open(kTales, options).status().message(), HasSubstr("none of the built-in ones (chatml"));
}

TEST(EngineChat, AModelWithoutATemplateSaysHowToGiveOne) {
  const auto folder = std::filesystem::temp_directory_path() / ("redline_no_template_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"})
    std::filesystem::create_symlink(std::filesystem::path(kTales) / name, folder / name);
  {
    const auto engine = TextEngine::open(folder.string());
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    EXPECT_FALSE((*engine)->info().has_chat_template);
    const Status status = (*engine)->render_chat(kHello).status();
    EXPECT_EQ(status.code(), Code::not_found);
    EXPECT_THAT(status.message(), HasSubstr("has no chat template; give one with --chat-template FILE"));
  }
  std::ofstream(folder / "chat_template.jinja") << "{% if %}";
  {
    const auto engine = TextEngine::open(folder.string());
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    EXPECT_FALSE((*engine)->info().has_chat_template);
    EXPECT_THAT((*engine)->render_chat(kHello).status().message(), HasSubstr("line 1, column 7"));
  }
  std::filesystem::remove_all(folder);
}

TEST(EngineChat, ReadsTheAnswerInTheFormatOfTheModel) {
  // The form of Hermes and Qwen2.5: calls are JSON between these markers.
  const testing::TemporaryFolder folder;
  TextEngineOptions options;
  options.chat_template = folder.path() + "/chat_template.jinja";
  std::ofstream(options.chat_template)
      << "{% if tools %}Answer with <tool_call>{\"name\": NAME, \"arguments\": ARGUMENTS}</tool_call>.{% endif %}"
         "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  const auto engine = TextEngine::open(kTales, options).value();
  const auto reader = engine->chat_reader(engine->render_chat(kHello).value(), "");
  std::vector<ChatDelta> deltas;
  reader->push("Hm. <tool_call>{\"name\": \"f\", \"argu", deltas);
  reader->push("ments\": {\"a\": 1}}</tool_call>", deltas);
  reader->finish(deltas);
  ASSERT_EQ(deltas.size(), 2u);
  EXPECT_EQ(deltas[0].text, "Hm.");
  EXPECT_EQ(deltas[1].call.name + deltas[1].call.arguments, "f{\"a\": 1}");
}

TEST(EngineChat, ControlTokensAppearOnRequest) {
  TextEngineOptions options;
  options.threads = 1;
  const auto engine = TextEngine::open(kTales, options).value();
  GenerateRequest request;
  request.prompt = engine->encode("Once upon").value();
  request.max_tokens = 400;
  request.sampling.temperature = 0;
  request.ignore_stop_tokens = true;
  const std::string plain = engine->generate(request).value().text;
  request.special = true;
  const auto special = engine->generate(request).value();
  constexpr std::string_view kEnd = "<|endoftext|>";
  size_t shown = 0;
  for (size_t at = 0; (at = special.text.find(kEnd, at)) != special.text.npos; at += kEnd.size()) ++shown;
  EXPECT_EQ(shown,
            std::count(special.tokens.begin(), special.tokens.end(), engine->encode(kEnd, true, false).value()[0]));
  EXPECT_EQ(plain.find("<|endoftext|>"), plain.npos);
}

// A stop string within the reasoning does not end the answer, unless that is asked for.
TEST(EngineChat, StopStringsActOnTheAnswer) {
  const testing::TemporaryFolder folder;
  TextEngineOptions options;
  options.chat_template = folder.path() + "/chat_template.jinja";
  std::ofstream(options.chat_template) << "{{ messages[0].content }}<think></think>";
  const auto engine = TextEngine::open(kTales, options).value();
  const std::string text = "<think>first stop, then stop</think>one <b> two stop three";
  GenerateRequest request;
  request.prompt = engine->encode("Hi").value();
  request.special = true;
  request.stop = {"stop", "<b> tw_"};
  request.constraint = {.kind = OutputConstraint::Kind::kChoice, .text = "", .choices = {text}};
  const auto written = [&] { return engine->generate(request).value(); };
  EXPECT_EQ(written().text, "<think>first ") << "not a chat";
  request.chat_prompt = "Hi<think></think>";  // the reasoning is left out: the choice begins with the first token
  EXPECT_EQ(written().text, "<think>first stop, then stop</think>one <b> two ");
  EXPECT_EQ(written().reason, FinishReason::kStop);
  request.stop_in_reasoning = true;
  EXPECT_EQ(written().text, "<think>first ");
  request.stop_in_reasoning = false;
  request.stop = {"nowhere"};
  EXPECT_EQ(written().text, text);
  std::string pieces;
  ASSERT_TRUE(engine
                  ->generate(request,
                             [&](const TextPiece& piece) {
                               pieces += piece.text;
                               return true;
                             })
                  .ok());
  EXPECT_EQ(pieces, text);
}

// A model that ends its text while it thinks has thought enough: it closes the reasoning, and the constraint holds.
TEST(EngineChat, AnEndWithinTheReasoningClosesIt) {
  const testing::TemporaryFolder folder;
  TextEngineOptions options;
  options.chat_template = folder.path() + "/chat_template.jinja";
  std::ofstream(options.chat_template) << "{{ messages[0].content }}<think>\n{# </think> #}";
  const auto engine = TextEngine::open(kTales, options).value();
  GenerateRequest request;
  request.chat_prompt = engine->render_chat(kHello).value();
  request.prompt = engine->encode(request.chat_prompt, true).value();
  request.special = true;
  request.max_tokens = 900;
  request.sampling.temperature = 0;
  request.constraint = {.kind = OutputConstraint::Kind::kRegex, .text = "[0-9]{3}!"};
  const GenerateResult result = engine->generate(request).value();
  EXPECT_EQ(result.reason, FinishReason::kStop);
  const auto reader = engine->chat_reader(request.chat_prompt, "", request.constraint.kind);
  std::vector<ChatDelta> deltas;
  reader->push(result.text, deltas);
  reader->finish(deltas);
  std::string reasoning, content;
  for (const ChatDelta& delta : deltas) (delta.kind == ChatDelta::Kind::kReasoning ? reasoning : content) += delta.text;
  EXPECT_NE(reasoning, "");
  EXPECT_EQ(content.size(), 4U) << content;
  EXPECT_TRUE(content.ends_with('!')) << content;
}

}  // namespace
}  // namespace redline
