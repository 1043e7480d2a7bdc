#include "diffusion/prompt.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "support/golden.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

const std::string kShapes = std::string(REDLINE_SOURCE_DIR) + "/assets/redline-shapes";

TextEncoderModel clip_like() {
  TextEncoderModel model;
  model.max_tokens = 77;
  model.vocab_size = 999;
  model.pooled_token = 998;
  return model;
}
TextEncoderModel t5_like() {
  TextEncoderModel model;
  model.max_tokens = 512;
  model.vocab_size = 928;
  model.has_position_limit = false;
  return model;
}
PromptTokenizer open_prompt(const char* name, const TextEncoderModel& model) {
  auto tokenizer = PromptTokenizer::open(kShapes + "/" + name, model);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return tokenizer.ok() ? std::move(*tokenizer) : PromptTokenizer();
}

// The ids that the reference images of the bundled model were made from.
TEST(Prompt, IdsAreThoseOfTheReference) {
  const PromptTokenizer clip = open_prompt("tokenizer", clip_like()), t5 = open_prompt("tokenizer_2", t5_like());
  const auto reference = testing::read_json(kShapes + "/reference/reference.json");
  ASSERT_EQ(reference["cases"].size(), 6u);
  for (const auto& c : reference["cases"]) {
    const auto prompt = c["prompt"].get<std::string>();
    auto want = testing::read_tokens(c["clip_ids"]);
    auto got = clip.encode(prompt);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->length, static_cast<int64_t>(want.size()));
    EXPECT_EQ(got->pooled_row, static_cast<int64_t>(want.size()) - 1);
    EXPECT_EQ(got->cut, 0);
    want.resize(77, 998);
    EXPECT_EQ(got->ids, want);
    want = testing::read_tokens(c["t5_ids"]);
    got = t5.encode(prompt, 64);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->length, static_cast<int64_t>(want.size()));
    want.resize(64, 0);
    EXPECT_EQ(got->ids, want);
  }
}

TEST(Prompt, WhatDoesNotFitIsCutAndReported) {
  const PromptTokenizer clip = open_prompt("tokenizer", clip_like()), t5 = open_prompt("tokenizer_2", t5_like());
  std::string prompt = "a red circle";
  for (int i = 0; i < 40; ++i) prompt += " on a";
  auto got = clip.encode(prompt);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->ids.size(), 77u);
  EXPECT_EQ(got->length, 77);
  EXPECT_EQ(got->cut, 83 - 75);
  EXPECT_EQ(got->cut_text, "on a on a on a on a");
  EXPECT_EQ(got->ids.front(), 997);
  EXPECT_EQ(got->ids.back(), 998);
  EXPECT_EQ(got->pooled_row, 76);
  got = t5.encode("a large red circle", 3);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->ids, (std::vector<int32_t>{3, 11, 1}));
  EXPECT_EQ(got->cut, 2);
  EXPECT_EQ(got->cut_text, "red circle");
  // Nothing but what is around a text.
  got = clip.encode("a red circle", 2);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->ids, (std::vector<int32_t>{997, 998}));
  EXPECT_EQ(got->cut, 3);
}

TEST(Prompt, NothingIsPaddingOnly) {
  const PromptTokenizer clip = open_prompt("tokenizer", clip_like()), t5 = open_prompt("tokenizer_2", t5_like());
  auto got = clip.encode("", 5);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->ids, (std::vector<int32_t>{997, 998, 998, 998, 998}));
  EXPECT_EQ(got->length, 2);
  EXPECT_EQ(got->pooled_row, 1);
  got = t5.encode(" \n", 4);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->ids, (std::vector<int32_t>{1, 0, 0, 0}));
  EXPECT_EQ(got->length, 1);
}

TEST(Prompt, LengthsThatCannotBeAreRefused) {
  const PromptTokenizer clip = open_prompt("tokenizer", clip_like()), t5 = open_prompt("tokenizer_2", t5_like());
  EXPECT_EQ(clip.max_tokens(), 77);
  EXPECT_EQ(t5.max_tokens(), 64);
  EXPECT_EQ(clip.encode("a", 1).status().message(),
            "a text length of 1 tokens is too small for the 2 begin and end tokens");
  EXPECT_EQ(clip.encode("a", 78).status().message(),
            "a text length of 78 tokens; the text encoder has positions for 77");
  EXPECT_FALSE(t5.encode("a", -1).ok());
  EXPECT_TRUE(t5.encode("a", 1000).ok());  // T5 has no positions
}

TEST(Prompt, ATokenizerThatDoesNotFitIsRefused) {
  const auto message = [](const char* name, const TextEncoderModel& model) {
    return PromptTokenizer::open(kShapes + "/" + name, model).status().message();
  };
  TextEncoderModel model = clip_like();
  model.vocab_size = 998;
  EXPECT_THAT(message("tokenizer", model), HasSubstr("the tokenizer has 999 tokens, its text encoder 998"));
  model = clip_like();
  model.pooled_token = 997;
  EXPECT_THAT(message("tokenizer", model), HasSubstr("does not end texts with token 997"));
  model.pooled_token = -1;
  EXPECT_EQ(message("tokenizer", model), "");
  EXPECT_THAT(message("tokenizer_3", model), HasSubstr("tokenizer_3"));
  EXPECT_THAT(message("scheduler", model), HasSubstr("no tokenizer.json"));
}

}  // namespace
}  // namespace redline
