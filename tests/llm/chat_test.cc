// The engine's side of chat templates: which template it takes, and what it says without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "redline/text.h"

namespace redline {
namespace {

using testing::HasSubstr;

constexpr const char* kTales = REDLINE_SOURCE_DIR "/assets/redline-tales";
constexpr ChatInput kHello{R"([{"role": "user", "content": "Hi"}])", "", ""};

TEST(EngineChat, RendersWithTheTemplateOfTheModel) {
  for (const char* path : {kTales, REDLINE_TALES_GGUF}) {
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

}  // namespace
}  // namespace redline
