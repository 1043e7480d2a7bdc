// The engine over golden encoders in the form of sentence-transformers' folders (over 600 lines: all tests change files
// of one such folder).
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <sstream>

#include "embedding/pooling.h"
#include "redline/embedding.h"
#include "support/encoder_golden.h"
#include "support/temporary_folder.h"

namespace redline::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// A golden encoder with the tokenizer of tests/golden/tokenizers/bert.json.
/// A request for the texts of a golden encoder, of which the vectors are not normalized.
EmbedRequest request_of(const EncoderGolden& golden) {
  EmbedRequest request;
  for (size_t i = 0; i < golden.lengths.size(); ++i) {
    const auto first = golden.tokens.begin() + golden.first_row(i);
    request.tokens.emplace_back(first, first + golden.lengths[i]);
  }
  request.normalize = false;
  return request;
}

class EmbeddingFolder : public ::testing::Test {
 protected:
  void make(const std::string& encoder) {
    for (const char* file : {"config.json", "model.safetensors"})
      fs::create_symlink(encoder_root() + "/" + encoder + "/" + file, folder_.path() + "/" + file);
    fs::create_symlink(std::string(REDLINE_SOURCE_DIR) + "/tests/golden/tokenizers/bert.json",
                       folder_.path() + "/tokenizer.json");
  }
  void put(const std::string& name, const std::string& text) {
    const fs::path path = fs::path(folder_.path()) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void put_modules(bool normalizes) {
    std::string modules = R"([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
      {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"})";
    if (normalizes)
      modules += R"(, {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"})";
    put("modules.json", modules + "]");
  }
  std::unique_ptr<EmbeddingEngine> open(EmbeddingOptions options = {}) {
    options.threads = options.threads == 0 ? 2 : options.threads;
    options.dtype = precision_;
    auto engine = EmbeddingEngine::open(folder_.path(), options);
    EXPECT_TRUE(engine.ok()) << engine.status().to_string();
    return engine.ok() ? std::move(engine).value() : nullptr;
  }
  static Embeddings embed(EmbeddingEngine& engine, const EmbedRequest& request) {
    auto e = engine.embed(request);
    EXPECT_TRUE(e.ok()) << e.status().to_string();
    return e.ok() ? std::move(e).value() : Embeddings();
  }
  static Status failure(EmbeddingEngine& engine, const EmbedRequest& request) { return engine.embed(request).status(); }
  static double norm(std::span<const float> v) {
    return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
  }

  TemporaryFolder folder_;
  Precision precision_ = Precision::kF32;
};

const std::vector<std::string> kTexts = {"Once upon a time", "", "the quick brown fox", "été naïve 12345",
                                         "a little girl named Lily, who said: it's printf(\"%d\")"};

TEST_F(EmbeddingFolder, TokenStatesArePooledToTheEmbedding) {
  make("bert");
  EmbeddingOptions options;
  options.pooling = Pooling::kMean;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  EmbedRequest request;
  request.texts = kTexts;
  request.normalize = false;
  EXPECT_TRUE(embed(*engine, request).token_states.empty());
  request.keep_token_states = true;
  const Embeddings e = embed(*engine, request);
  const auto width = static_cast<size_t>(engine->info().hidden_size);
  ASSERT_EQ(e.token_states.size(), kTexts.size());
  for (size_t i = 0; i < kTexts.size(); ++i) {
    const std::vector<float>& states = e.token_states[i];
    ASSERT_EQ(states.size(), static_cast<size_t>(e.tokens[i]) * width) << i;
    for (size_t k = 0; k < width; ++k) {
      double sum = 0;
      for (size_t t = 0; t < states.size(); t += width) sum += states[t + k];
      EXPECT_NEAR(e.values[i * width + k], sum / static_cast<double>(e.tokens[i]), 1e-5) << i << " " << k;
    }
  }
}

TEST_F(EmbeddingFolder, OtherPrecisionsAreCloseToFloat32) {
  make("bert");
  EmbedRequest request;
  request.texts = kTexts;
  const auto exact = open();
  ASSERT_NE(exact, nullptr);
  const Embeddings want = embed(*exact, request);
  struct Case {
    Precision precision;
    const char* type;  ///< that the matrices have then
    double bound;      ///< of the distance of two vectors of length 1
  };
  // Two layers of six products, whose operands are rounded independently: bfloat16 is off by at most 2^-9 of an
  // element, 12 products by sqrt(2 * 12) / 2^9 < 1e-2; 8 bits by up to half a step of 1/127 of the largest element of a
  // block or row, which with four deviations is sqrt(2 * 12) * 4 / 127 / sqrt(12) < 5e-2.
  for (const Case& c : {Case{Precision::kBF16, "bf16", 1e-2}, Case{Precision::kQ8_0, "q8_0", 5e-2},
                        Case{Precision::kW8A8, "w8a8", 5e-2}, Case{Precision::kQ8, "8", 5e-2}}) {
    precision_ = c.precision;
    const auto engine = open();
    ASSERT_NE(engine, nullptr);
    EXPECT_THAT(engine->info().weight_types, HasSubstr(c.type));
    const Embeddings got = embed(*engine, request);
    const auto width = static_cast<size_t>(engine->info().dimensions);
    ASSERT_EQ(got.values.size(), want.values.size());
    double largest = 0;
    for (size_t at = 0; at < want.values.size(); at += width) {
      double sum = 0;
      for (size_t i = at; i < at + width; ++i) sum += std::pow(double{got.values[i]} - double{want.values[i]}, 2);
      largest = std::max(largest, std::sqrt(sum));
    }
    RecordProperty(c.type, fmt::format("{:.1e}", largest));
    EXPECT_GT(largest, 0) << c.type;
    EXPECT_LE(largest, c.bound) << c.type;
  }
}

TEST_F(EmbeddingFolder, NormsMayBeNamedGammaAndBeta) {
  make("bert");
  const auto engine = open();
  ASSERT_NE(engine, nullptr);
  const fs::path file = fs::path(folder_.path()) / "model.safetensors";
  std::stringstream bytes;
  bytes << std::ifstream(file).rdbuf();
  std::string text = bytes.str();
  uint64_t size = 0;
  std::memcpy(&size, text.data(), sizeof size);
  auto header = nlohmann::ordered_json::parse(text.substr(sizeof size, size));
  nlohmann::ordered_json renamed;
  for (const auto& [name, tensor] : header.items()) {
    std::string old_name = name;
    if (const auto at = name.find("LayerNorm.weight"); at != std::string::npos) old_name.replace(at + 10, 6, "gamma");
    if (const auto at = name.find("LayerNorm.bias"); at != std::string::npos) old_name.replace(at + 10, 4, "beta");
    renamed[old_name] = tensor;
  }
  std::string made = renamed.dump();
  ASSERT_THAT(made, HasSubstr("embeddings.LayerNorm.gamma"));
  made.resize((made.size() + 7) / 8 * 8, ' ');
  const uint64_t length = made.size();
  fs::remove(file);
  std::ofstream(file) << std::string(reinterpret_cast<const char*>(&length), sizeof length) << made
                      << text.substr(sizeof size + size);
  const auto old_names = open();
  ASSERT_NE(old_names, nullptr);
  EmbedRequest request;
  request.texts = kTexts;
  EXPECT_EQ(embed(*old_names, request).values, embed(*engine, request).values);
}

TEST_F(EmbeddingFolder, TheEmulatedDeviceGivesTheSame) {
  make("modernbert");
  EmbedRequest request;
  request.texts = kTexts;
  std::vector<Embeddings> all;
  for (const char* device : {"cpu", "emu"}) {
    EmbeddingOptions options;
    options.device = device;
    options.pooling = Pooling::kMean;
    const auto engine = open(options);
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(engine->info().isa == "emu", device == std::string("emu"));
    all.push_back(embed(*engine, request));
  }
  ASSERT_EQ(all[1].values.size(), all[0].values.size());
  // Vectors have length 1; the device computes float32 sums in another order.
  for (size_t i = 0; i < all[0].values.size(); ++i) EXPECT_NEAR(all[1].values[i], all[0].values[i], 1e-5) << i;
  EmbeddingOptions timeline;
  timeline.device = "emu";
  timeline.pooling = Pooling::kMean;
  timeline.trace_file = folder_.path() + "/trace.json";
  {
    const auto engine = open(timeline);
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(embed(*engine, request).values, all[1].values);
  }
  std::stringstream text;
  text << std::ifstream(timeline.trace_file).rdbuf();
  EXPECT_THAT(text.str(), ::testing::HasSubstr(R"("name":"stream")"));
}

TEST_F(EmbeddingFolder, EveryPoolingIsItsFormula) {
  make("roberta");  // whose token types are all 0, as the engine's
  const EncoderGolden golden = load_encoder_golden("roberta");
  EmbedRequest request = request_of(golden);
  for (const char* name : {"mean", "cls", "last", "max", "mean_sqrt", "weighted_mean"}) {
    EmbeddingOptions options;
    options.pooling = pooling_from_name(name).value();
    const auto engine = open(options);
    ASSERT_TRUE(engine);
    const Embeddings e = embed(*engine, request);
    ASSERT_EQ(e.count, std::ssize(golden.lengths));
    ASSERT_EQ(e.dimensions, golden.width());
    for (int64_t i = 0; i < e.count; ++i)
      for (int64_t c = 0; c < e.dimensions; ++c) {
        const int64_t n = golden.lengths[static_cast<size_t>(i)];
        const auto x = [&](int64_t t) {
          return static_cast<double>(
              golden.hidden
                  .values[static_cast<size_t>((golden.first_row(static_cast<size_t>(i)) + t) * e.dimensions + c)]);
        };
        double sum = 0, weighted = 0, most = -INFINITY;
        for (int64_t t = 0; t < n; ++t) {
          sum += x(t);
          weighted += static_cast<double>(t + 1) * x(t);
          most = std::max(most, x(t));
        }
        const double count = static_cast<double>(n);
        const std::map<std::string, double> want = {{"mean", sum / count},
                                                    {"cls", x(0)},
                                                    {"last", x(n - 1)},
                                                    {"max", most},
                                                    {"mean_sqrt", sum / std::sqrt(count)},
                                                    {"weighted_mean", weighted / (count * (count + 1) / 2)}};
        EXPECT_NEAR(e.values[static_cast<size_t>(i * e.dimensions + c)], want.at(name), 1e-4) << name << ", text " << i;
      }
  }
}

TEST_F(EmbeddingFolder, StepsOfAnySizeGiveTheSameBits) {
  make("bert");
  EmbedRequest request;
  for (int i = 0; i < 20; ++i) request.texts.insert(request.texts.end(), kTexts.begin(), kTexts.end());
  const auto large = open(), small = open({.threads = 1, .max_batch_tokens = 64});
  ASSERT_TRUE(large && small);
  const Embeddings a = embed(*large, request), b = embed(*small, request);
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.tokens[1], 2) << "an empty text is its two special tokens";
  for (size_t i = 0; i < kTexts.size(); ++i) {
    const Embeddings one = embed(*large, {.texts = {kTexts[i]}});
    EXPECT_TRUE(
        std::equal(one.values.begin(), one.values.end(), a.values.begin() + static_cast<int64_t>(i) * a.dimensions));
    EXPECT_NEAR(norm(one.values), 1, 1e-6);
  }
  auto interpreter = open({.use_interpreter = true});
  ASSERT_TRUE(interpreter);
  const Embeddings exact = embed(*interpreter, {.texts = kTexts});
  for (size_t i = 0; i < exact.values.size(); ++i) EXPECT_NEAR(exact.values[i], a.values[i], 2e-5);
}

TEST_F(EmbeddingFolder, RequestsShareStepsAndNothingElse) {
  make("bert");
  const auto engine = open({.max_batch_tokens = 64});
  ASSERT_TRUE(engine);
  std::vector<EmbedRequest> requests(6);
  std::vector<int> asked(requests.size());
  requests[0].texts = {"a fox", "the fox"};
  requests[1].texts = {"a fox"};
  requests[1].dimensions = 8;
  requests[1].normalize = false;
  requests[2].texts = {std::string(1000, 'x') + " y"};  // unknown words are one token
  requests[2].prompt_name = "none";
  requests[3].tokens = {{5, 6}, {7}};
  requests[5].texts = std::vector<std::string>(40, "once upon a time");
  const auto run = [&](const std::function<bool(size_t)>& goes_on) {
    std::vector<std::optional<Result<Embeddings>>> results(requests.size());
    for (size_t i = 0; i < requests.size(); ++i)
      requests[i].goes_on = [&, i] {
        ++asked[i];
        return goes_on(i);
      };
    engine->embed_all(requests, [&](size_t i, Result<Embeddings> result) {
      EXPECT_FALSE(results[i].has_value());
      results[i].emplace(std::move(result));
    });
    for (EmbedRequest& request : requests) request.goes_on = nullptr;
    return results;
  };
  auto results = run([](size_t) { return true; });
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(results[i].has_value()) << i;
    if (i == 2) {
      EXPECT_THAT(results[i]->status().message(), HasSubstr("prompt \"none\""));
      continue;
    }
    ASSERT_TRUE(results[i]->ok()) << results[i]->status().to_string();
    const Embeddings alone = embed(*engine, requests[i]);
    EXPECT_EQ((*results[i])->values, alone.values) << i;
    EXPECT_EQ((*results[i])->tokens, alone.tokens) << i;
  }
  EXPECT_EQ((*results[4])->count, 0);
  // The first five have one step, with the beginning of the last one.
  asked.assign(asked.size(), 0);
  run([](size_t) { return true; });
  EXPECT_EQ(asked[0], 1);
  EXPECT_EQ(asked[1], 1);
  EXPECT_EQ(asked[3], 1);
  EXPECT_GT(asked[5], 1);
  // Who leaves is left out of the steps to come.
  results = run([&](size_t i) { return i != 1 && (i != 5 || asked[5] < 2); });
  EXPECT_EQ(results[1]->status().code(), Code::cancelled);
  EXPECT_EQ(results[5]->status().code(), Code::cancelled);
  EXPECT_TRUE(results[0]->ok() && results[3]->ok());
}

TEST_F(EmbeddingFolder, FollowsTheFilesOfSentenceTransformers) {
  make("bert");
  put_modules(false);
  put("1_Pooling/config.json", R"({"word_embedding_dimension": 32, "pooling_mode_cls_token": true,
                                   "pooling_mode_mean_tokens": false})");
  put("sentence_bert_config.json", R"({"max_seq_length": 16, "do_lower_case": false})");
  put("config_sentence_transformers.json",
      R"({"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query"})");
  const auto engine = open();
  ASSERT_TRUE(engine);
  const EmbeddingInfo& info = engine->info();
  EXPECT_EQ(info.pooling, Pooling::kCls);
  EXPECT_FALSE(info.normalizes);
  EXPECT_EQ(info.max_length, 16);
  EXPECT_EQ(info.dimensions, 32);
  EXPECT_EQ(info.default_prompt, "query");
  const Embeddings prompted = embed(*engine, {.texts = {"time"}});
  EXPECT_GT(std::abs(norm(prompted.values) - 1), 1e-3) << "no Normalize module";
  EXPECT_EQ(prompted.values, embed(*engine, {.texts = {"query: time"}, .prompt_name = ""}).values);
  EXPECT_EQ(prompted.values, embed(*engine, {.texts = {"time"}, .prompt_name = "query"}).values);
  EXPECT_NE(prompted.values, embed(*engine, {.texts = {"time"}, .prompt_name = "document"}).values);
  EXPECT_NEAR(norm(embed(*engine, {.texts = {"time"}, .normalize = true}).values), 1, 1e-6);
  EXPECT_THAT(failure(*engine, {.texts = {"time"}, .prompt_name = "title"}).message(),
              HasSubstr("prompt \"title\": the model has document, query"));
  EXPECT_EQ(engine->encode("time").value(), engine->encode("query: time", "").value());
}

TEST_F(EmbeddingFolder, SeveralPoolingsAreRefused) {
  make("bert");
  const std::string pooling = R"({"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"})";
  put("modules.json", "[" + pooling + ", " + pooling + "]");
  const Status status = EmbeddingEngine::open(folder_.path(), {.threads = 1}).status();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_THAT(status.message(), HasSubstr("several modules of type sentence_transformers.models.Pooling"));
}

TEST_F(EmbeddingFolder, ThePromptCanBeLeftOutOfThePooling) {
  make("bert");
  put_modules(true);
  put("1_Pooling/config.json", R"({"pooling_mode": "last", "include_prompt": false})");
  put("config_sentence_transformers.json", R"({"prompts": {"q": "the quick "}})");
  // The first token after the prompt is the only one left of a text of one token, before [SEP].
  EmbeddingOptions options;
  options.pooling = Pooling::kCls;
  const auto first = open(options);
  ASSERT_TRUE(first);
  const Embeddings a = embed(*first, {.texts = {"fox"}, .prompt_name = "q", .normalize = false});
  const Embeddings whole = embed(*first, {.texts = {"the quick fox"}, .prompt_name = "", .normalize = false});
  EXPECT_NE(a.values, whole.values);
  EXPECT_EQ(a.tokens, whole.tokens);
}

TEST_F(EmbeddingFolder, LongTextsAreAnErrorUnlessCut) {
  make("bert");
  const auto engine = open({.max_length = 12});
  ASSERT_TRUE(engine);
  std::string text;
  for (int i = 0; i < 30; ++i) text += "a ";
  const Status status = failure(*engine, {.texts = {"short", text}});
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("text 1: 32 tokens are more than the model's 12"));
  const Embeddings cut = embed(*engine, {.texts = {"short", text}, .truncate = true});
  EXPECT_EQ(cut.truncated, 1);
  EXPECT_EQ(cut.tokens[1], 12);
  std::string ten;
  for (int i = 0; i < 10; ++i) ten += "a ";
  const Embeddings same = embed(*engine, {.texts = {ten}});
  EXPECT_TRUE(std::equal(same.values.begin(), same.values.end(), cut.values.begin() + cut.dimensions));
  EXPECT_THAT(EmbeddingEngine::open(folder_.path(), {.max_length = 65}).status().message(), HasSubstr("65"));
}

// The work of a long text is counted in slices, after each of which goes_on() may end it.
TEST_F(EmbeddingFolder, LongTextsAreEncodedInSlicesAndOnlyAsFarAsNeeded) {
  make("bert");
  // Bytes are tokens: gpt2.json without its merges and special tokens.
  auto tokenizer =
      nlohmann::json::parse(std::ifstream(std::string(REDLINE_SOURCE_DIR) + "/tests/golden/tokenizers/gpt2.json"));
  nlohmann::json letters = nlohmann::json::object();
  for (const auto& [piece, id] : tokenizer["model"]["vocab"].items())
    if (id < 300) letters[piece] = id;
  tokenizer["model"]["vocab"] = letters;
  tokenizer["model"]["merges"] = nlohmann::json::array();
  tokenizer["added_tokens"] = nlohmann::json::array();
  tokenizer["post_processor"] = nullptr;
  const auto bert = open({.max_length = 12});
  ASSERT_TRUE(bert);
  fs::remove(folder_.path() + "/tokenizer.json");
  put("tokenizer.json", tokenizer.dump());
  const auto bytes = open({.max_length = 12});
  ASSERT_TRUE(bytes);

  constexpr int64_t kText = int64_t{1} << 20, kSlices = kText / EncodeLimits::kSliceBytes;
  std::string text;
  while (std::ssize(text) < kText) text += "a ";
  int64_t slices = 0, last_slice = INT64_MAX;
  EmbedRequest request;
  request.texts = {text};
  request.goes_on = [&] { return ++slices < last_slice; };
  // A token is at most four bytes: such a text is refused before it is read.
  Status status = failure(*bytes, request);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("text 0: a text of 1048576 bytes has at least 262144 tokens"));
  EXPECT_EQ(slices, 0);
  // A word of any length may be one unknown token: the text is normalized, and encoded up to four times max_length.
  status = failure(*bert, request);
  EXPECT_THAT(status.message(), HasSubstr("text 0: a text of 1048576 bytes has at least 49 tokens"));
  EXPECT_GE(slices, kSlices);
  EXPECT_LE(slices, 8 * kSlices) << "a few passes of the normalizer";
  slices = 0;
  last_slice = 1;
  EXPECT_EQ(failure(*bert, request).code(), Code::cancelled);
  EXPECT_EQ(slices, 1) << "the client had gone";
  // Texts that may be cut have the same tokens as short ones.
  last_slice = INT64_MAX;
  request.truncate = true;
  for (EmbeddingEngine* engine : {bert.get(), bytes.get()}) {
    const Embeddings cut = embed(*engine, request),
                     whole = embed(*engine, {.texts = {"a a a a a a a a a a"}, .truncate = true});
    EXPECT_EQ(cut.truncated, 1);
    EXPECT_EQ(cut.tokens, whole.tokens);
    EXPECT_EQ(cut.values, whole.values);
  }
  // Documents and queries of a ranking are bounded in the same way.
  slices = 0;
  RankRequest rank = {"a", {"b", text}, false, request.goes_on};
  EXPECT_EQ(bytes->rank(rank).status().code(), Code::invalid_argument);
  rank = {text, {"a"}, false, request.goes_on};
  EXPECT_EQ(bytes->rank(rank).status().code(), Code::invalid_argument);
  EXPECT_LE(slices, 4) << "steps of the short texts";
}

TEST_F(EmbeddingFolder, FewerDimensionsAreNormalizedAgain) {
  make("bert");
  const auto engine = open();
  ASSERT_TRUE(engine);
  const Embeddings whole = embed(*engine, {.texts = kTexts}), part = embed(*engine, {.texts = kTexts, .dimensions = 7});
  ASSERT_EQ(part.dimensions, 7);
  for (size_t i = 0; i < kTexts.size(); ++i) {
    const auto a = std::span(whole.values).subspan(i * 32, 7), b = std::span(part.values).subspan(i * 7, 7);
    EXPECT_NEAR(norm(b), 1, 1e-6);
    for (size_t c = 0; c < 7; ++c) EXPECT_NEAR(b[c], a[c] / norm(a), 1e-6);
  }
  EXPECT_THAT(failure(*engine, {.texts = kTexts, .dimensions = 33}).message(), HasSubstr("33 dimensions"));
}

TEST_F(EmbeddingFolder, WrongIdsAreRefused) {
  make("bert");
  const auto engine = open();
  ASSERT_TRUE(engine);
  for (const std::vector<int32_t>& ids : {std::vector<int32_t>{}, {300}, {-1}}) {
    const Status status = failure(*engine, {.tokens = {{5, 6}, ids}});
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr("text 1: "));
  }
  EXPECT_FALSE(engine->embed({.texts = {"a"}, .tokens = {{5}}}).ok());
  EXPECT_EQ(embed(*engine, {}).count, 0);
}

TEST_F(EmbeddingFolder, ACrossEncoderRanksByItsClassifier) {
  make("bert_cross_encoder");
  const auto engine = open();
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->info().num_labels, 1);
  const RankRequest request = {"a little girl", kTexts, false};
  const auto ranking = engine->rank(request);
  ASSERT_TRUE(ranking.ok()) << ranking.status().to_string();
  // The interpreter gives equal scores for [CLS] query [SEP] document [SEP], the document with token type 1.
  const EncoderGolden golden = load_encoder_golden("bert_cross_encoder");
  EncoderModel model = find_encoder_family(golden.checkpoint)->build(golden.checkpoint).value();
  const auto runtime = make_runtime(1);
  SymbolValues bounds;
  bounds[Symbol::kTokens] = 256;
  bounds[Symbol::kSequences] = 1;
  Executable network = make_network(std::move(model.graph), bounds, NetworkMode::kInterpreter, *runtime);
  Executable head = make_network(std::move(*model.head), bounds, NetworkMode::kInterpreter, *runtime);
  const std::vector<int32_t> query = engine->encode(request.query).value();
  for (size_t d = 0; d < kTexts.size(); ++d) {
    std::vector<int32_t> ids = query, document = engine->encode(kTexts[d]).value();
    ids.insert(ids.end(), document.begin() + 1, document.end());
    for (size_t i = 0; i < ids.size(); ++i) {
      network.input_i32("tokens")[i] = ids[i];
      network.input_i32("positions")[i] = static_cast<int32_t>(i);
      network.input_i32("token_types")[i] = i >= query.size() ? 1 : 0;
    }
    network.input_i32("offsets")[0] = 0;
    network.input_i32("offsets")[1] = static_cast<int32_t>(ids.size());
    SymbolValues sizes;
    sizes[Symbol::kTokens] = std::ssize(ids);
    sizes[Symbol::kSequences] = 1;
    ASSERT_TRUE(network.run(sizes).ok());
    std::copy_n(network.output("hidden"), model.width, head.input("pooled"));
    ASSERT_TRUE(head.run(sizes).ok());
    EXPECT_NEAR(ranking->scores[d], 1 / (1 + std::exp(-head.output("scores")[0])), 2e-5) << kTexts[d];
  }
  EXPECT_THAT(engine->rank({std::string(400, '!'), kTexts, true}).status().message(),
              HasSubstr("query and document 0"));
}

TEST_F(EmbeddingFolder, OtherModelsRankByCosine) {
  make("bert");
  const auto engine = open();
  ASSERT_TRUE(engine);
  const auto ranking = engine->rank({kTexts[2], kTexts, false});
  ASSERT_TRUE(ranking.ok()) << ranking.status().to_string();
  const Embeddings e = embed(*engine, {.texts = kTexts});
  for (size_t i = 0; i < kTexts.size(); ++i) {
    const auto row = [&](size_t r) { return std::span(e.values).subspan(r * 32, 32); };
    EXPECT_NEAR(ranking->scores[i], std::inner_product(row(2).begin(), row(2).end(), row(i).begin(), 0.0), 1e-5);
  }
  EXPECT_NEAR(ranking->scores[2], 1, 1e-6);
}

// Qwen3-Embedding: the last token of a language model whose folder leaves the output matrix out.
TEST_F(EmbeddingFolder, ADecoderGivesItsLastToken) {
  make("qwen3_embedding");
  const EncoderGolden golden = load_encoder_golden("qwen3_embedding");
  EmbedRequest request;
  for (int again = 0; again < 3; ++again)
    for (size_t i = 0; i < golden.lengths.size(); ++i) {
      const auto first = golden.tokens.begin() + golden.first_row(i);
      request.tokens.emplace_back(first, first + golden.lengths[i]);
    }
  request.normalize = false;
  for (const int64_t batch : {0, 7, 64}) {  // texts are cut where a step is full
    const auto engine = open({.max_batch_tokens = batch});
    ASSERT_TRUE(engine);
    EXPECT_EQ(engine->info().pooling, Pooling::kLast);
    EXPECT_EQ(engine->info().max_length, 128);
    const Embeddings e = embed(*engine, request);
    std::vector<float> want;
    for (int again = 0; again < 3; ++again)
      for (size_t i = 0; i < golden.lengths.size(); ++i) {
        const auto row = golden.hidden.values.begin() + (golden.first_row(i + 1) - 1) * golden.width();
        want.insert(want.end(), row, row + golden.width());
      }
    ASSERT_EQ(e.values.size(), want.size());
    EXPECT_LE(difference(e.values.data(), want.data(), e.count, e.dimensions).all, 2e-5) << batch;
  }
}

// Every pooling of a decoder is that of the hidden states which transformers computes, also where a text takes several
// steps.
TEST_F(EmbeddingFolder, ADecoderPoolsTheStatesOfAllTokens) {
  make("qwen3_embedding");
  const EncoderGolden golden = load_encoder_golden("qwen3_embedding");
  EmbedRequest request = request_of(golden);
  request.keep_token_states = true;
  const std::vector<float> states(golden.hidden.values.begin(), golden.hidden.values.end());
  for (const Pooling pooling :
       {Pooling::kMean, Pooling::kCls, Pooling::kLast, Pooling::kMax, Pooling::kMeanSqrt, Pooling::kWeightedMean})
    for (const int64_t batch : {0, 7}) {  // texts are cut where a step is full
      const auto engine = open({.pooling = pooling, .max_batch_tokens = batch});
      ASSERT_TRUE(engine);
      EXPECT_EQ(engine->info().pooling, pooling);
      const Embeddings e = embed(*engine, request);
      for (size_t i = 0; i < golden.lengths.size(); ++i) {
        const float* hidden = states.data() + golden.first_row(i) * golden.width();
        std::vector<float> want(static_cast<size_t>(golden.width()));
        pool(pooling, hidden, golden.lengths[i], want);
        const float* got = e.values.data() + static_cast<int64_t>(i) * e.dimensions;
        EXPECT_LE(difference(got, want.data(), 1, e.dimensions).all, 2e-5) << pooling_name(pooling) << " " << batch;
        ASSERT_EQ(std::ssize(e.token_states[i]), golden.lengths[i] * golden.width());
        EXPECT_LE(difference(e.token_states[i].data(), hidden, golden.lengths[i], golden.width()).all, 2e-5);
      }
    }
}

TEST_F(EmbeddingFolder, WhatIsNotSupportedIsNamed) {
  make("bert");
  const auto message = [&] { return EmbeddingEngine::open(folder_.path()).status().to_string(); };
  put_modules(true);
  put("1_Pooling/config.json", R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})");
  EXPECT_THAT(message(), HasSubstr("2 pooling modes"));
  put("1_Pooling/config.json", R"({"pooling_mode": "attention"})");
  EXPECT_THAT(message(), HasSubstr("pooling \"attention\""));
  put("modules.json", R"([{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}])");
  EXPECT_THAT(message(), HasSubstr("sentence_transformers.models.Dense"));
  put("modules.json", "{");
  EXPECT_THAT(message(), HasSubstr("modules.json"));
}

TEST_F(EmbeddingFolder, TellsEmbeddingModelsFromOthers) {
  make("modernbert");
  EXPECT_TRUE(is_embedding_model(folder_.path()));
  EXPECT_TRUE(is_embedding_model(encoder_root() + "/bert/model.gguf"));
  EXPECT_FALSE(is_embedding_model(golden_root() + "/qwen3"));
  EXPECT_FALSE(is_embedding_model(golden_root() + "/qwen3/model.gguf"));
  EXPECT_FALSE(is_embedding_model(folder_.path() + "/nothing"));
}

}  // namespace
}  // namespace redline::testing
