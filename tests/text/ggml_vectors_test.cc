// The 47 texts that llama.cpp checks every vocabulary with, and their ids.
#include "vocab_files.h"

#include <nlohmann/json.hpp>

namespace redline {
namespace {

void check_vectors(const Tokenizer& tokenizer, const std::string& stem) {
  const auto vectors = read_vectors(stem);
  ASSERT_GT(vectors.size(), 20u);
  for (const Vector& v : vectors) {
    const auto ids = tokenizer.encode(v.text, {.add_special = false});
    EXPECT_EQ(ids, v.ids) << stem << " on \"" << v.text << "\"";
    EXPECT_EQ(tokenizer.decode(ids), v.text);
  }
}

class GgmlVectors : public ::testing::TestWithParam<const char*> {};

TEST_P(GgmlVectors, IdsAreEqual) {
  const std::string stem = shared_path(std::string("ggml-vocab/ggml-vocab-") + GetParam() + ".gguf");
  REDLINE_NEED_FILE(stem + ".out");
  REDLINE_NEED_FILE(stem);
  const auto tokenizer = open_gguf_tokenizer(stem);
  ASSERT_TRUE(tokenizer);
  check_vectors(*tokenizer, stem);
}
INSTANTIATE_TEST_SUITE_P(Files, GgmlVectors,
                         ::testing::Values("llama-spm", "phi-3", "gpt-2", "falcon", "deepseek-llm", "deepseek-coder",
                                           "refact", "starcoder", "mpt", "qwen2", "command-r"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// WordPiece loses white space and case, so texts do not come back.
TEST(GgmlVectors, BertBge) {
  const std::string stem = shared_path("ggml-vocab/ggml-vocab-bert-bge.gguf");
  REDLINE_NEED_FILE(stem);
  const auto tokenizer = open_gguf_tokenizer(stem);
  ASSERT_TRUE(tokenizer);
  const auto vectors = read_vectors(stem);
  ASSERT_GT(vectors.size(), 20u);
  for (const Vector& v : vectors) EXPECT_EQ(tokenizer->encode(v.text, {.add_special = false}), v.ids) << v.text;
  EXPECT_EQ(tokenizer->prefix(), std::vector<TokenId>{101});
  EXPECT_EQ(tokenizer->suffix(), std::vector<TokenId>{102});
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("Hello, WORLD! It's unaffable.")), "hello, world! it ' s unaffable.");
}

TEST(GgmlVectors, LlamaBpeWithTheLlama32Vocabulary) {
  const std::string folder = shared_path("tokenizer-llama3.2/");
  const std::string stem = shared_path("ggml-vocab/ggml-vocab-llama-bpe.gguf");
  REDLINE_NEED_FILE(folder + "encoder.json");
  REDLINE_NEED_FILE(stem + ".out");
  const auto encoder = nlohmann::json::parse(must_read(folder + "encoder.json"));
  GgufVocab vocab;
  vocab.model = "gpt2";
  vocab.pre = "llama-bpe";
  vocab.tokens.resize(encoder.size());
  for (const auto& [piece, id] : encoder.items()) vocab.tokens.at(id.get<size_t>()) = piece;
  std::istringstream lines(must_read(folder + "vocab.bpe"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && !line.starts_with("#version")) vocab.merges.push_back(line);
  }
  const auto tokenizer = tokenizer_from_gguf(std::move(vocab));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  check_vectors(**tokenizer, stem);
}

TEST(GgmlVectors, LlamaSpmFromTokenizerModel) {
  const std::string path = shared_path("tokenizer-llama2/tokenizer.model");
  const std::string stem = shared_path("ggml-vocab/ggml-vocab-llama-spm.gguf");
  REDLINE_NEED_FILE(path);
  const auto tokenizer = tokenizer_from_sentencepiece(must_read(path), "");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_EQ((*tokenizer)->vocab_size(), 32000);
  EXPECT_TRUE((*tokenizer)->adds_bos());
  check_vectors(**tokenizer, stem);
}

TEST(GgmlVectors, LlamaSpmFromLlama2c) {
  const std::string path = shared_path("tokenizer-llama2/tokenizer.bin");
  const std::string stem = shared_path("ggml-vocab/ggml-vocab-llama-spm.gguf");
  REDLINE_NEED_FILE(path);
  auto vocab = vocab_from_llama2c(must_read(path), 32000);
  ASSERT_TRUE(vocab.ok()) << vocab.status().to_string();
  const auto tokenizer = tokenizer_from_gguf(std::move(*vocab));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  check_vectors(**tokenizer, stem);
}

TEST(GgmlVectors, NeoxFileAgreesWithItsTokenizerJson) {
  const std::string gguf = shared_path("ggml-vocab/ggml-vocab-gpt-neox.gguf");
  const std::string json = shared_path("tokenizer-neox20b/tokenizer.json");
  REDLINE_NEED_FILE(gguf);
  REDLINE_NEED_FILE(json);
  // The file names no pre-tokenizer; llama.cpp would then guess "default", the vocabulary was made with GPT-2's
  // pattern.
  auto file = GgufFile::open(gguf);
  ASSERT_TRUE(file.ok());
  GgufVocab vocab = vocab_of(*file);
  vocab.pre = "gpt-neox";
  const auto a = tokenizer_from_gguf(std::move(vocab));
  const auto b = tokenizer_from_json(must_read(json), "");
  ASSERT_TRUE(a.ok()) << a.status().to_string();
  ASSERT_TRUE(b.ok()) << b.status().to_string();
  for (const Vector& v : read_vectors(shared_path("ggml-vocab/ggml-vocab-gpt-2.gguf"))) {
    EXPECT_EQ((*a)->encode(v.text, {.add_special = false}), (*b)->encode(v.text, {.add_special = false})) << v.text;
  }
}

TEST(BundledModel, PromptIdsAreTheReference) {
  const std::string folder = std::string(REDLINE_SOURCE_DIR) + "/assets/redline-tales";
  const auto tokenizer = tokenizer_from_folder(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  const auto gguf = open_gguf_tokenizer(REDLINE_TALES_GGUF);
  ASSERT_TRUE(gguf);
  const auto reference = nlohmann::json::parse(must_read(folder + "/reference/ref.json"));
  for (const auto& prompt : reference["prompts"]) {
    const auto ids = prompt["prompt_ids"].get<std::vector<TokenId>>();
    // Chat prompts are templates already written out: they hold their special tokens.
    const bool chat = prompt["kind"] != "plain";
    const EncodeOptions options{.add_special = !chat, .parse_special = chat};
    const auto text = prompt["prompt"].get<std::string>();
    EXPECT_EQ((*tokenizer)->encode(text, options), ids) << text;
    EXPECT_EQ(gguf->encode(text, options), ids) << text;
    EXPECT_EQ((*tokenizer)->decode(prompt["greedy_ids"].get<std::vector<TokenId>>()),
              prompt["text"].get<std::string>());
  }
  EXPECT_EQ((*tokenizer)->stop_tokens(), (std::vector<TokenId>{0, 2}));
  EXPECT_EQ(gguf->stop_tokens(), (std::vector<TokenId>{0, 2}));
}

}  // namespace
}  // namespace redline
