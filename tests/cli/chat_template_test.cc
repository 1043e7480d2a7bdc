#include "cli/chat_template.h"

#include <gtest/gtest.h>

namespace redline::cli {
namespace {

TEST(ChatTemplate, FormatsByTheWordsOfTheTemplate) {
  const auto asked = [](const char* words) { return in_chat_format(words, "Hi"); };
  EXPECT_EQ(asked("{{'<|im_start|>' + role}} <|im_end|>"), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(
      asked("<|start_header_id|> <|eot_id|>"),
      "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(asked("[INST] [/INST]"), "[INST] Hi [/INST]");
  EXPECT_EQ(asked("<|user|> <|assistant|> <|end|>"), "<|user|>\nHi<|end|>\n<|assistant|>\n");
  EXPECT_EQ(asked("<|user|> <|assistant|> eos_token"), "<|user|>\nHi</s>\n<|assistant|>\n");
  EXPECT_EQ(asked("an unknown one"), "");
  EXPECT_EQ(asked("[INST]"), "");
}

TEST(ChatTemplate, AdviceIsACommandLine) {
  EXPECT_EQ(chat_advice("<|im_start|><|im_end|>", "m", "it's\n\\"),
            "use its chat format:\n"
            "  redline run m --special $'<|im_start|>user\\nit\\'s\\n\\\\<|im_end|>\\n<|im_start|>assistant\\n'");
  EXPECT_EQ(chat_advice("[INST][/INST]", "m", std::string(1000, 'x')),
            "use its chat format:\n  redline run m --special $'[INST] PROMPT [/INST]'");
  EXPECT_EQ(chat_advice("another", "m", "Hi"),
            "write its template into PROMPT, with --special; redline inspect m --chat-template prints it");
}

}  // namespace
}  // namespace redline::cli
