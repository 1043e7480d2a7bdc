// A language model that ranks by the logits of "yes" and "no": the golden Qwen3 with a small vocabulary.
#include "embedding/causal_reranker.h"

#include <gmock/gmock.h>

#include "redline/embedding.h"
#include "support/golden.h"
#include "support/safetensors_file.h"
#include "support/temporary_folder.h"

namespace redline::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// Letters, and the two words; 62 tokens.
std::string tokenizer_json() {
  nlohmann::json vocab = {{"<unk>", 0}, {"yes", 1}, {"no", 2}, {"es", 3}};
  for (const char* c = "abcdefghijklmnopqrstuvwxyz :<>|_.QDIJNGW\n\"/"; *c != 0; ++c)
    vocab[std::string(1, *c)] = static_cast<int>(vocab.size());
  return nlohmann::json(
             {{"model",
               {{"type", "BPE"}, {"unk_token", "<unk>"}, {"vocab", vocab}, {"merges", {"e s", "y es", "n o"}}}}})
      .dump();
}

class RerankerFolder : public ::testing::Test {
 protected:
  RerankerFolder() {
    fs::create_symlink(golden_root() + "/qwen3/model.safetensors", path("model.safetensors"));
    config_ = read_json(golden_root() + "/qwen3/config.json");
    config_["max_position_embeddings"] = 1024;
    put("config.json", config_.dump());
    put("tokenizer.json", tokenizer_json());
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  void put(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }
  std::unique_ptr<EmbeddingEngine> open() const {
    EmbeddingOptions options;
    options.dtype = Precision::kF32;
    options.threads = 2;
    auto engine = EmbeddingEngine::open(folder_.path(), options);
    EXPECT_TRUE(engine.ok()) << engine.status().to_string();
    return engine.ok() ? std::move(engine).value() : nullptr;
  }
  /// The logits after the last token of the whole prompt.
  std::vector<float> logits(const std::string& query, const std::string& document) const {
    TextEngineOptions options;
    options.dtype = ComputeType::kF32;
    options.context = 1024;
    auto engine = open_engine(folder_.path(), options);
    if (!engine) return {};
    std::vector<int32_t> ids;
    // The prompt of Qwen3-Reranker's model card.
    for (const auto& part :
         {std::string(
              "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
              "Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n"),
          "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n<Query>: " + query +
              "\n<Document>: " + document,
          std::string("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")}) {
      const auto more = engine->encode(part, false, false);
      EXPECT_TRUE(more.ok());
      ids.insert(ids.end(), more->begin(), more->end());
    }
    auto sequence = engine->new_sequence();
    const auto row = (*sequence)->forward(ids);
    EXPECT_TRUE(row.ok()) << row.status().to_string();
    return {row->begin(), row->end()};
  }
  void expect_scores() const {
    const auto engine = open();
    ASSERT_TRUE(engine);
    EXPECT_EQ(engine->info().num_labels, 1);
    RankRequest request;
    request.query = "what is a bat";
    request.documents = {"a bat is no bird", "", "yes"};
    const auto ranking = engine->rank(request);
    ASSERT_TRUE(ranking.ok()) << ranking.status().to_string();
    ASSERT_EQ(ranking->scores.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<float> row = logits(request.query, request.documents[i]);
      ASSERT_FALSE(row.empty());
      EXPECT_NEAR(ranking->scores[i], 1 / (1 + std::exp(double{row[2]} - double{row[1]})), 2e-5) << i;
    }
    request.documents = {std::string(2000, 'a')};
    EXPECT_THAT(engine->rank(request).status().message(), HasSubstr("query and document 0"));
    request.truncate = true;
    const auto cut = engine->rank(request);
    ASSERT_TRUE(cut.ok()) << cut.status().to_string();
    EXPECT_EQ(cut->truncated, 1);
    EXPECT_EQ(cut->tokens, 1024);
  }

  TemporaryFolder folder_;
  nlohmann::json config_;
};

TEST_F(RerankerFolder, ARerankerByItsModelCardRanksByYesAndNo) {
  put("README.md", "---\nlicense: apache-2.0\n---\n# Qwen3-Reranker-0.6B\n");
  EXPECT_TRUE(is_embedding_model(folder_.path()));
  expect_scores();
}

TEST_F(RerankerFolder, ARerankerByItsConfigRanksByYesAndNo) {
  config_["classifier_from_token"] = {"no", "yes"};
  put("config.json", config_.dump());
  expect_scores();
}

TEST_F(RerankerFolder, AClassifierOfOneScoreRanksByIt) {
  config_["architectures"] = {"Qwen3ForSequenceClassification"};
  put("config.json", config_.dump());
  SafetensorsFile file = SafetensorsFile::read(golden_root() + "/qwen3/model.safetensors");
  // The difference of the rows of "yes" and "no", which are bfloat16.
  const int64_t width = config_["hidden_size"].get<int64_t>();
  std::vector<uint16_t> rows(static_cast<size_t>(3 * width));
  std::memcpy(rows.data(), file.bytes_of("model.embed_tokens.weight"), rows.size() * 2);
  std::vector<float> score(static_cast<size_t>(width));
  for (int64_t i = 0; i < width; ++i)
    score[static_cast<size_t>(i)] =
        bf16_to_f32(rows[static_cast<size_t>(width + i)]) - bf16_to_f32(rows[static_cast<size_t>(2 * width + i)]);
  file.add("score.weight", "F32", {1, width}, score.data(), score.size() * sizeof(float));
  fs::remove(path("model.safetensors"));
  file.write(path("model.safetensors"));
  const auto engine = open();
  ASSERT_TRUE(engine);
  const auto ranking = engine->rank({"what is a bat", {"a bat is no bird", "yes"}, false, {}});
  ASSERT_TRUE(ranking.ok()) << ranking.status().to_string();
  file.header.erase("score.weight");  // what generates text has no place for it
  file.write(path("model.safetensors"));
  const std::vector<float> row = logits("what is a bat", "a bat is no bird");
  EXPECT_NEAR(ranking->scores[0], 1 / (1 + std::exp(double{row[2]} - double{row[1]})), 2e-5);
}

TEST_F(RerankerFolder, ALanguageModelWithoutFilesForEmbeddingsDoesNotRank) {
  EXPECT_FALSE(is_embedding_model(folder_.path()));
  const auto engine = open();
  ASSERT_TRUE(engine);
  const Status status = engine->rank({"a", {"b"}, false, {}}).status();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_THAT(status.message(), HasSubstr("neither a reranker nor"));
}

TEST_F(RerankerFolder, ATokenizerWithoutTheWordsIsRefused) {
  put("README.md", "# Qwen3-Reranker-0.6B\n");
  put("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})");
  const auto engine = EmbeddingEngine::open(folder_.path(), {});
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.status().message(), HasSubstr("no tokens \"yes\" and \"no\""));
}

}  // namespace
}  // namespace redline::testing
