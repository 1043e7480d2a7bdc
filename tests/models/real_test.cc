// Trained models: stories260K and the babyllamas of ../shared/models (logits and greedy text of an independent float64
// forward and of llama2.c), their GGUF forms in every type, and the bundled Redline Tales (PyTorch transformers in
// real_float32).
#include "formats/llama2c_to_gguf.h"
#include "support/golden.h"
#include "support/temporary_folder.h"
#include "text/gguf_vocab.h"

namespace redline::testing {
namespace {

using nlohmann::json;

std::string shared(const std::string& path) { return std::string(REDLINE_SHARED_DIR) + "/models/" + path; }
std::string tales(const std::string& path) { return std::string(REDLINE_SOURCE_DIR) + "/assets/redline-tales" + path; }

#define REDLINE_NEEDS(path) \
  if (!std::filesystem::exists(path)) GTEST_SKIP() << (path) << " is not there"

TextEngineOptions real_float32(int threads = 2) {
  TextEngineOptions options;
  options.threads = threads;
  options.dtype = ComputeType::kF32;
  return options;
}

struct Greedy {
  std::vector<int32_t> tokens;
  std::string text;
};

Greedy greedy(TextEngine& engine, std::vector<int32_t> prompt, int64_t max_tokens) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  request.ignore_stop_tokens = true;
  Greedy out;
  auto result = engine.generate(request, [&](const TextPiece& piece) {
    out.text += piece.text;
    return true;
  });
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  if (!result.ok()) return out;
  EXPECT_EQ(out.text, result->text) << "the pieces must add up to the text";
  out.tokens = result->tokens;
  return out;
}

/// Mean of -ln p(token | those before it) over `tokens`, the first left out.
double mean_nats(const std::vector<float>& logits, std::span<const int32_t> tokens, int64_t vocab) {
  double sum = 0;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    const float* row = logits.data() + static_cast<int64_t>(i) * vocab;
    const double top = *std::max_element(row, row + vocab);
    double total = 0;
    for (int64_t v = 0; v < vocab; ++v) total += std::exp(row[v] - top);
    sum += top + std::log(total) - row[tokens[i + 1]];
  }
  return sum / static_cast<double>(tokens.size() - 1);
}

void expect_reference(const std::string& model, const std::string& reference, double bound) {
  auto engine = open_engine(model, real_float32());
  ASSERT_TRUE(engine);
  const std::vector<int32_t> ids = read_tokens(read_json(reference + "/ref_greedy.json")["greedy_ids"]);
  auto want = read_npy(reference + "/ref_logits_f32.npy");
  ASSERT_TRUE(want.ok()) << want.status().message();
  ASSERT_EQ(static_cast<int64_t>(ids.size()), want->dim(0));
  const std::vector<float> logits = all_logits(*engine, ids);
  ASSERT_EQ(logits.size(), want->values.size());
  const Difference d = difference(logits.data(), want->values.data(), want->dim(0), want->dim(1));
  EXPECT_LE(d.worst_row, bound);
  if (bound > 1e-4) return;  // a type of fewer bits may leave the path where two logits nearly tie
  const Greedy text = greedy(*engine, {ids[0]}, static_cast<int64_t>(ids.size()) - 1);
  EXPECT_EQ(text.tokens, std::vector<int32_t>(ids.begin() + 1, ids.end()));
}

TEST(RealModels, Stories260K) {
  const std::string model = shared("gguf-real/stories260K-F32.gguf");
  REDLINE_NEEDS(model);
  expect_reference(model, shared("stories260K"), 1e-4);
}

// The checkpoints as llama2.c has them, through our own conversion.
class Llama2cModel : public ::testing::TestWithParam<std::array<const char*, 3>> {};
INSTANTIATE_TEST_SUITE_P(All, Llama2cModel,
                         ::testing::Values(std::array{"stories260K", "stories260K.bin", "tok512.bin"},
                                           std::array{"babyllama-tok105", "model5000.bin", "tok105.bin"},
                                           std::array{"babyllama-tok361", "model5000.bin", "tok361.bin"}),
                         [](const auto& info) {
                           std::string name = info.param[0];
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(Llama2cModel, ConvertedGivesTheReference) {
  const auto [folder, checkpoint, tokenizer] = GetParam();
  const std::string source = shared(folder);
  REDLINE_NEEDS(source);
  auto model = Llama2cFile::open(source + "/" + checkpoint);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  auto vocab = vocab_from_llama2c(read_text(source + "/" + tokenizer), model->vocab_size);
  ASSERT_TRUE(vocab.ok()) << vocab.status().to_string();
  GgufWriter writer;
  const Status collected = llama2c_to_gguf(*model, folder, {vocab->tokens, vocab->scores, vocab->token_types}, writer);
  ASSERT_TRUE(collected.ok()) << collected.to_string();
  const TemporaryFolder out;
  const std::string path = out.path() + "/model.gguf";
  const Status written = writer.write(path);
  ASSERT_TRUE(written.ok()) << written.to_string();
  expect_reference(path, source, 1e-4);

  auto engine = open_engine(path, real_float32());
  ASSERT_TRUE(engine);
  std::string want = read_json(source + "/ref_greedy.json")["text"].get<std::string>();
  for (size_t at; (at = want.find("<0x0A>")) != std::string::npos;) want.replace(at, 6, "\n");  // written out there
  const std::string told = greedy(*engine, {}, 127).text;
  EXPECT_EQ(told, want.substr(want.find_first_not_of(' ')));
}

// llama2.c prints what follows BOS, its leading space left out, and a line end.
TEST(RealModels, Stories260KTellsWhatLlama2cTells) {
  const std::string model = shared("gguf-real/stories260K-F32.gguf");
  REDLINE_NEEDS(model);
  auto engine = open_engine(model, real_float32());
  ASSERT_TRUE(engine);
  EXPECT_EQ(greedy(*engine, {}, 200).text + "\n", read_text(shared("stories260K/expected_stdout_t0_n200.txt")));
}

// Rounding each weight to bf16 (relative 2^-9) or f16 (2^-12) moves the logits by that times a small factor.
TEST(RealModels, Babyllama361InFloatTypes) {
  REDLINE_NEEDS(shared("gguf-real/babyllama-tok361-F32.gguf"));
  const std::string reference = shared("babyllama-tok361");
  expect_reference(shared("gguf-real/babyllama-tok361-F32.gguf"), reference, 1e-4);
  expect_reference(shared("gguf-real/babyllama-tok361-F16.gguf"), reference, 2e-3);
  expect_reference(shared("gguf-real/babyllama-tok361-BF16.gguf"), reference, 1.6e-2);
}

// Perplexity of each type on a story beside that of the real_float32 file, as ratios: llama-perplexity's figures for
// 60,000 bytes stand in SOURCE.txt there. Ours is over one window of 200 tokens, so the ratio may differ by sampling
// error; an error in a block format or a scale would show as a factor. "auto" beside "f32" on the same file: rounding
// activations to int8 changes the mean by less than one part in a hundred.
TEST(RealModels, Babyllama361InBlockTypes) {
  const std::string plain = shared("gguf-real/babyllama-tok361-F32.gguf");
  const std::string corpus = shared("text-corpora/tinystories-lowercase-4M.txt");
  REDLINE_NEEDS(plain);
  REDLINE_NEEDS(corpus);
  auto reference = open_engine(plain, real_float32());
  ASSERT_TRUE(reference);
  auto ids = reference->encode(read_text(corpus).substr(0, 3000));
  ASSERT_TRUE(ids.ok()) << ids.status().to_string();
  ids->resize(std::min<size_t>(ids->size(), 250));
  const int64_t vocab = reference->info().vocab_size;
  const double base = mean_nats(all_logits(*reference, *ids), *ids, vocab);
  EXPECT_LT(base, 1.6);
  const std::pair<const char*, double> types[] = {
      // ln(perplexity / 3.2454)
      {"Q8_0", 0.0003}, {"Q5_1", 0.0109}, {"Q5_0", 0.0155}, {"Q4_1", 0.0389}, {"Q4_0", 0.0391}, {"IQ4_NL", 0.0479}};
  for (const auto& [type, more_nats] : types) {
    const std::string path = shared(fmt::format("gguf-real/babyllama-tok361-{}.gguf", type));
    double nats[2];
    for (const ComputeType dtype : {ComputeType::kF32, ComputeType::kAuto}) {
      TextEngineOptions options = real_float32();
      options.dtype = dtype;
      auto engine = open_engine(path, options);
      ASSERT_TRUE(engine);
      nats[dtype == ComputeType::kAuto] = mean_nats(all_logits(*engine, *ids), *ids, vocab);
    }
    RecordProperty(type, fmt::format("{:.4f} {:.4f} {:.4f}", base, nats[0], nats[1]));
    EXPECT_NEAR(nats[0] - base, more_nats, 0.02 + more_nats) << type;
    EXPECT_NEAR(nats[1], nats[0], 0.01) << type << " in auto";
  }
}

class RedlineTales : public ::testing::TestWithParam<const char*> {
 protected:
  std::string model() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(From, RedlineTales,
                         ::testing::Values(REDLINE_SOURCE_DIR "/assets/redline-tales", REDLINE_TALES_GGUF),
                         [](const auto& info) { return std::string(info.index == 0 ? "Folder" : "Gguf"); });

/// The reference has logits of some positions of one prompt.
struct TalesLogits {
  std::vector<int32_t> ids, positions;
  NpyArray want;

  static TalesLogits read() {
    const json about = read_json(tales("/reference/ref.json"))["logits"];
    TalesLogits logits = {read_tokens(about["ids"]), read_tokens(about["positions"]), {}};
    auto want = read_npy(tales("/reference/logits_f32.npy"));
    EXPECT_TRUE(want.ok()) << want.status().message();
    if (want.ok()) logits.want = std::move(want).value();
    EXPECT_EQ(std::ssize(logits.positions), logits.want.dim(0));
    return logits;
  }
  int64_t vocab() const { return want.dim(1); }
  /// Largest error of a row, of the positions that `got`, [tokens, vocab], has.
  double worst_row(const std::vector<float>& got) const {
    double worst = 0;
    for (size_t i = 0; i < positions.size(); ++i)
      if (const int64_t at = positions[i] * vocab(); at < std::ssize(got))
        worst = std::max(
            worst,
            difference(got.data() + at, want.values.data() + static_cast<int64_t>(i) * vocab(), 1, vocab()).worst_row);
    return worst;
  }
};

TEST_P(RedlineTales, LogitsMatchTransformersOnAnyThreads) {
  const TalesLogits reference = TalesLogits::read();
  std::vector<float> first;
  for (const int threads : {1, 2, 4, 8}) {
    auto engine = open_engine(model(), real_float32(threads));
    ASSERT_TRUE(engine);
    const std::vector<float> logits = all_logits(*engine, reference.ids, {31, 1, 100});
    ASSERT_EQ(std::ssize(logits), std::ssize(reference.ids) * reference.vocab());
    if (first.empty()) first = logits;
    EXPECT_TRUE(logits == first) << threads << " threads give other bits";
  }
  const double error = reference.worst_row(first);
  EXPECT_LE(error, 2e-5);
  RecordProperty("relative_error", fmt::format("{:.2e}", error));
}

TEST_P(RedlineTales, TellsTheSixStories) {
  const json reference = read_json(tales("/reference/ref.json"));
  for (const ComputeType dtype : {ComputeType::kF32, ComputeType::kAuto}) {
    TextEngineOptions options = real_float32();
    options.dtype = dtype;
    auto engine = open_engine(model(), options);
    ASSERT_TRUE(engine);
    ASSERT_EQ(reference["prompts"].size(), 6u);
    for (const json& prompt : reference["prompts"]) {
      const std::string text = prompt["prompt"].get<std::string>();
      const bool chat = prompt["kind"] == "chat";
      auto ids = engine->encode(text, chat, !chat);  // the chat template writes BOS itself
      ASSERT_TRUE(ids.ok()) << ids.status().to_string();
      EXPECT_EQ(*ids, read_tokens(prompt["prompt_ids"])) << text;
      const Greedy out = greedy(*engine, read_tokens(prompt["prompt_ids"]), 64);
      EXPECT_EQ(out.tokens, read_tokens(prompt["greedy_ids"])) << text;
      EXPECT_EQ(out.text, prompt["text"].get<std::string>()) << text;
    }
  }
}

TEST_P(RedlineTales, InterpreterAgrees) {
  TalesLogits reference = TalesLogits::read();
  constexpr int64_t kTokens = 8;  // 7 million multiply-adds a token, one at a time
  ASSERT_EQ(reference.positions[kTokens - 1], kTokens - 1) << "all of them are in the reference";
  reference.ids.resize(kTokens);
  TextEngineOptions options = real_float32(1);
  options.use_interpreter = true;
  auto engine = open_engine(model(), options);
  ASSERT_TRUE(engine);
  const std::vector<float> logits = all_logits(*engine, reference.ids);
  ASSERT_EQ(std::ssize(logits), kTokens * reference.vocab());
  // The reference was computed in real_float32: its own rounding, 2e-6 or so, is in the difference.
  EXPECT_LE(reference.worst_row(logits), 2e-5);
}

}  // namespace
}  // namespace redline::testing
