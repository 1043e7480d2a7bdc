// The compiled constraints of an engine: which are kept.
#include "llm/output_constraints.h"

#include <gtest/gtest.h>

#include "models/checkpoint/checkpoint.h"

namespace redline {
namespace {

OutputConstraint regex(const std::string& text) {
  OutputConstraint constraint;
  constraint.kind = OutputConstraint::Kind::kRegex;
  constraint.text = text;
  return constraint;
}

TEST(OutputConstraints, WhatTheyKeepTogetherIsBounded) {
  const Checkpoint checkpoint = Checkpoint::open(REDLINE_SOURCE_DIR "/assets/redline-tales").value();
  const int64_t vocab = checkpoint.tokenizer->vocab_size();
  OutputConstraints large(checkpoint.tokenizer.get(), vocab, {0}), small(checkpoint.tokenizer.get(), vocab, {0}, 1);
  for (OutputConstraints* constraints : {&large, &small}) {
    const auto first = constraints->compile(regex("[a-z ]+")).value();
    EXPECT_EQ(constraints->compile(regex("[a-z ]+")).value(), first);
    EXPECT_EQ(first->cache_bytes(), 0U);
    ConstraintState state(first);
    TokenBits bits(first->trie().num_words());
    ASSERT_TRUE(state.fill_mask(bits).ok());
    EXPECT_GT(first->cache_bytes(), 0U);
    EXPECT_EQ(constraints->compile(regex("[a-z ]+")).value(), first) << "the latest stays in any case";
    (void)constraints->compile(regex("[0-9]+")).value();
    EXPECT_EQ(constraints->compile(regex("[a-z ]+")).value() == first, constraints == &large);
    const TokenBits before = bits;
    ASSERT_TRUE(state.fill_mask(bits).ok()) << "who uses it keeps it";
    EXPECT_EQ(bits, before);
  }
  // And by number.
  const auto oldest = large.compile(regex("x")).value();
  for (int i = 0; i < 31; ++i) (void)large.compile(regex(std::string(static_cast<size_t>(i) + 1, 'y'))).value();
  EXPECT_EQ(large.compile(regex("x")).value(), oldest);
  for (int i = 0; i < 32; ++i) (void)large.compile(regex(std::string(static_cast<size_t>(i) + 1, 'z'))).value();
  EXPECT_NE(large.compile(regex("x")).value(), oldest);
}

// Prompts that leave off at the same place share a constraint; the answer of a chat may think first.
TEST(OutputConstraints, ChatPromptsWithReasoning) {
  const Checkpoint checkpoint = Checkpoint::open(REDLINE_SOURCE_DIR "/assets/redline-tales").value();
  OutputConstraints constraints(checkpoint.tokenizer.get(), checkpoint.tokenizer->vocab_size(), {0});
  constraints.set_chat_template("<tool_call> <think> </think>");
  const auto begins = [&](std::string_view prompt, std::string_view text) {
    return ConstraintState(constraints.compile(regex("[0-9]+"), prompt).value()).allows(text);
  };
  EXPECT_TRUE(begins("", "12"));
  EXPECT_FALSE(begins("", "So."));
  EXPECT_TRUE(begins("<think>\n", "So.</think>\n\n12"));
  EXPECT_FALSE(begins("<think>\n", "So.</think>\n\nSo"));
  EXPECT_TRUE(begins("assistant\n", "12"));
  EXPECT_TRUE(begins("assistant\n", "<think>So.</think>\n\n12"));
  EXPECT_FALSE(begins("assistant\n", "So."));
  EXPECT_FALSE(begins("<think>\n\n</think>\n\n", "<"));
  const auto compiled = [&](std::string_view prompt) { return constraints.compile(regex("x"), prompt).value(); };
  EXPECT_EQ(compiled("a<think>\n"), compiled("b<think>"));
  EXPECT_NE(compiled("a<think>\n"), compiled("b"));
  EXPECT_NE(compiled("b"), compiled(""));
}

}  // namespace
}  // namespace redline
