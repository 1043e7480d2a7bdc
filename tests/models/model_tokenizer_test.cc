#include "models/checkpoint/model_tokenizer.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/gguf_writer.h"

namespace redline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModelTokenizer : public ::testing::Test {
 protected:
  ModelTokenizer() {
    writer.set("tokenizer.ggml.model", "llama");
    writer.set_strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>"});
  }
  ~ModelTokenizer() override { std::filesystem::remove(path); }
  Result<GgufVocab> read() {
    EXPECT_TRUE(writer.write(path).ok());
    REDLINE_ASSIGN(const GgufFile file, GgufFile::open(path));
    return read_gguf_vocab(file);
  }
  std::string path = ::testing::TempDir() + "model_tokenizer_" +
                     ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".gguf";
  GgufWriter writer;
};

TEST_F(ModelTokenizer, ReadsEveryKey) {
  writer.set("tokenizer.ggml.pre", "default");
  writer.set_f32s("tokenizer.ggml.scores", {0, -1, -2.5f});
  writer.set_i32s("tokenizer.ggml.token_type", {2, 3, 3});
  writer.set_strings("tokenizer.ggml.merges", {"a b"});
  writer.set_u32("tokenizer.ggml.bos_token_id", 1);
  writer.set_u32("tokenizer.ggml.eos_token_id", 2);
  writer.set_u32("tokenizer.ggml.eot_token_id", 0xffffffff);
  writer.set_bool("tokenizer.ggml.add_bos_token", true);
  writer.set_bool("tokenizer.ggml.add_space_prefix", false);
  const auto vocab = read();
  ASSERT_TRUE(vocab.ok()) << vocab.status().to_string();
  EXPECT_EQ(vocab->model, "llama");
  EXPECT_EQ(vocab->pre, "default");
  EXPECT_THAT(vocab->tokens, ElementsAre("<unk>", "<s>", "</s>"));
  EXPECT_THAT(vocab->scores, ElementsAre(0, -1, -2.5f));
  EXPECT_THAT(vocab->token_types, ElementsAre(2, 3, 3));
  EXPECT_THAT(vocab->merges, ElementsAre("a b"));
  EXPECT_EQ(vocab->bos, 1);
  EXPECT_EQ(vocab->eos, 2);
  EXPECT_EQ(vocab->eot, -1);
  EXPECT_EQ(vocab->unk, -1);
  EXPECT_EQ(vocab->add_bos, true);
  EXPECT_EQ(vocab->add_space_prefix, false);
  EXPECT_FALSE(vocab->add_eos.has_value());
}

TEST_F(ModelTokenizer, ListsOfAnotherLengthAreErrors) {
  writer.set_f32s("tokenizer.ggml.scores", {0, -1});
  const auto vocab = read();
  EXPECT_EQ(vocab.status().code(), Code::invalid_argument);
  EXPECT_THAT(vocab.status().message(), HasSubstr("tokenizer.ggml.scores has 2 entries for 3 tokens"));
}

TEST_F(ModelTokenizer, WrongKindsAreNamed) {
  writer.set("tokenizer.ggml.bos_token_id", "one");
  const auto vocab = read();
  EXPECT_EQ(vocab.status().code(), Code::invalid_argument);
  EXPECT_THAT(vocab.status().message(), HasSubstr("tokenizer.ggml.bos_token_id is a string, expected an integer"));
}

TEST_F(ModelTokenizer, ReadsTheTokensOfFillInTheMiddle) {
  const auto read_tokens = [&]() -> Result<FillInTokens> {
    EXPECT_TRUE(writer.write(path).ok());
    REDLINE_ASSIGN(const GgufFile file, GgufFile::open(path));
    return read_gguf_fill_in_tokens(file);
  };
  EXPECT_EQ(read_tokens()->prefix, -1);
  writer.set_u32("tokenizer.ggml.prefix_token_id", 1);  // the names of older files
  writer.set_u32("tokenizer.ggml.suffix_token_id", 2);
  EXPECT_EQ(read_tokens()->prefix, 1);
  EXPECT_EQ(read_tokens()->suffix, 2);
  const char* const keys[] = {"pre", "suf", "mid", "pad", "rep", "sep"};
  for (uint32_t i = 0; i < 6; ++i) writer.set_u32(fmt::format("tokenizer.ggml.fim_{}_token_id", keys[i]), 10 + i);
  const auto tokens = read_tokens();
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(tokens->prefix, 10);
  EXPECT_EQ(tokens->suffix, 11);
  EXPECT_EQ(tokens->middle, 12);
  EXPECT_EQ(tokens->pad, 13);
  EXPECT_EQ(tokens->repository, 14);
  EXPECT_EQ(tokens->file, 15);
  writer.set("tokenizer.ggml.fim_mid_token_id", "two");
  EXPECT_THAT(read_tokens().status().message(), HasSubstr("fim_mid_token_id is a string, expected an integer"));
}

TEST_F(ModelTokenizer, AFileWithoutOneIsNotFound) {
  writer = GgufWriter();
  writer.set("general.architecture", "llama");
  const auto vocab = read();
  EXPECT_EQ(vocab.status().code(), Code::not_found);
  EXPECT_THAT(vocab.status().message(), HasSubstr(path + ": the file holds no tokenizer"));
}

}  // namespace
}  // namespace redline
