// Every golden model, from its folder and from its GGUF twin, against PyTorch transformers: float32, the interpreter,
// prompts cut anywhere, any number of threads, and cut-off sequences.
#include <algorithm>
#include <cmath>
#include <random>

#include "support/golden.h"

namespace redline::testing {
namespace {

TextEngineOptions options_for(const std::vector<int32_t>& tokens, int threads) {
  TextEngineOptions options;
  options.threads = threads;
  options.dtype = ComputeType::kF32;
  options.context = static_cast<int64_t>(tokens.size()) + 8;  // some go beyond max_position_embeddings on purpose
  return options;
}

class GoldenModel : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    golden_ = load_golden(golden_folder(GetParam()));
    ASSERT_FALSE(golden_.tokens.empty());
  }
  std::string path() const { return golden_root() + "/" + GetParam(); }
  int64_t rows() const { return golden_.logits.dim(0); }
  int64_t vocab() const { return golden_.logits.dim(1); }
  int64_t total() const { return static_cast<int64_t>(golden_.tokens.size()); }
  std::span<const int32_t> tokens() const { return golden_.tokens; }

  Difference compare(const std::vector<float>& logits, std::span<const double> conditions = {}) {
    EXPECT_EQ(logits.size(), golden_.logits.values.size());
    if (logits.size() != golden_.logits.values.size()) return {INFINITY, INFINITY, INFINITY, INFINITY};
    const Difference d = difference(logits.data(), golden_.logits.values.data(), rows(), vocab(), conditions);
    RecordProperty("largest_error", fmt::format("{:.2e}", d.all));
    RecordProperty("relative_error", fmt::format("{:.2e}", d.worst_row));
    RecordProperty("rms_error", fmt::format("{:.2e}", d.rms));
    return d;
  }
  void expect_close(const std::vector<float>& logits, double bound) {
    const Difference d = compare(logits);
    EXPECT_LE(d.all, bound);
    EXPECT_LE(d.worst_row, bound);
  }
  static bool is_recurrent(const TextEngine& engine) {
    const std::string& name = engine.info().architecture;
    return name == "mamba2" || name == "qwen3_next" || name == "qwen3_5" || name == "qwen3_5_moe" ||
           name == "falcon_h1" || name == "lfm2" || name == "lfm2_moe" || name == "granitemoehybrid";
  }
  Golden golden_;
};

// The bound of the project. Float32 rounding through two layers gives about 2e-6 (transformers' own float32 run of the
// same models is off by up to 2.5e-6, see make_golden.py); anything forgotten in a model costs 1e-3 and more.
TEST_P(GoldenModel, Float32MatchesTransformers) {
  auto engine = open_engine(path(), options_for(golden_.tokens, 2));
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->info().vocab_size, vocab());
  expect_close(all_logits(*engine, tokens()), 2e-5);
}

// "auto" keeps float weights in float32 sums too and rounds only the cached keys and values, to float16:
// docs/numerics.md derives 2.2e-3 for a row of these models. Where the CPU multiplies bfloat16 faster, it rounds the
// operands of products with BF16 weights, on tile units also those with F16 weights and of attention.
TEST_P(GoldenModel, AutoStaysWithinItsBound) {
  TextEngineOptions options = options_for(golden_.tokens, 2);
  options.dtype = ComputeType::kAuto;
  auto engine = open_engine(path(), options);
  ASSERT_TRUE(engine);
  const AutoRounding rounding = auto_rounding(engine->info().weight_types);
  // Two layers have at most 4e-3; the errors of layers are independent and add up as a root of squares.
  const double layers = std::max(2.0, static_cast<double>(engine->info().num_layers));
  // Scores of GPT-Neo are not divided by the root of the head size, and neither is what rounding keys does to them.
  const double scores = engine->info().architecture == "gpt_neo" ? std::sqrt(engine->info().head_dim) : 1;
  if (!rounding.any()) return expect_close(all_logits(*engine, tokens()), 4e-3 * scores * std::sqrt(layers / 2));
  // Some rows magnify every rounding, those of float32 too.
  auto exact = open_engine(path(), options_for(golden_.tokens, 2));
  ASSERT_TRUE(exact);
  const std::vector<float> f32 = all_logits(*exact, tokens());
  ASSERT_EQ(f32.size(), golden_.logits.values.size());
  const auto conditions = row_conditions(f32.data(), golden_.logits.values.data(), rows(), vocab());
  const Difference d = compare(all_logits(*engine, tokens()), conditions);
  EXPECT_LE(d.rms, rounding.golden_rms());
  EXPECT_LE(d.all, rounding.golden_largest());
}

// The interpreter computes in float64; what is left is one rounding of the logits to float32 (6e-8) and the rope
// frequencies, kept in float32 as transformers keeps them: at position 36 an angle is off by up to 36 x 2^-25 = 1.1e-6
// radians, a score by that times |q| |k| / sqrt(head_dim), which is 3 to 5 here.
TEST_P(GoldenModel, InterpreterMatchesTransformers) {
  TextEngineOptions options = options_for(golden_.tokens, 1);
  options.use_interpreter = true;
  auto engine = open_engine(path(), options);
  ASSERT_TRUE(engine);
  expect_close(all_logits(*engine, tokens()), 5e-6);
}

// A row's sums run in one order, whatever rows share its step, so cuts do not even change the rounding.
TEST_P(GoldenModel, AnyChunksGiveTheSameBits) {
  auto engine = open_engine(path(), options_for(golden_.tokens, 2));
  ASSERT_TRUE(engine);
  const std::vector<float> whole = all_logits(*engine, tokens());
  ASSERT_FALSE(whole.empty());
  std::mt19937 random(7);
  std::vector<std::vector<int64_t>> cuts = {{1}, {2}, {1, 16, 3, 1, 100}};
  for (int i = 0; i < 3; ++i) {
    cuts.emplace_back();
    for (int k = 0; k < 30; ++k) cuts.back().push_back(1 + static_cast<int64_t>(random() % 9));
  }
  if (depends_on_length(*engine)) cuts.clear();
  for (const auto& chunks : cuts) {
    const std::vector<float> logits = all_logits(*engine, tokens(), chunks);
    ASSERT_EQ(logits.size(), whole.size());
    EXPECT_EQ(difference(logits.data(), whole.data(), rows(), vocab()).worst_row, 0)
        << "chunks of " << ::testing::PrintToString(chunks);
  }
  // A prompt longer than a step is cut by the engine itself.
  TextEngineOptions small_steps = options_for(golden_.tokens, 2);
  small_steps.max_batch_tokens = 4;
  engine = open_engine(path(), small_steps);
  ASSERT_TRUE(engine);
  EXPECT_EQ(all_logits(*engine, tokens()), whole) << "steps of at most 4 tokens";
  // Step by step in sight of the caller, of which one is cancelled: the sequence is then as before.
  auto sequence = engine->new_sequence();
  ASSERT_TRUE(sequence.ok());
  EXPECT_EQ((*sequence)->append_in_steps(tokens(), 0, [](int64_t, auto) { return false; }).code(), Code::cancelled);
  EXPECT_EQ((*sequence)->length(), 0);
  std::vector<float> last;
  int64_t steps = 0;
  const int64_t wanted = total() / 2;
  const Status status = (*sequence)->append_in_steps(tokens(), wanted, [&](int64_t done, std::span<const float> rows) {
    EXPECT_EQ(done, std::min(++steps * 4, total()));
    last.insert(last.end(), rows.begin(), rows.end());
    return true;
  });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(last, std::vector<float>(whole.end() - wanted * vocab(), whole.end()));
}

TEST_P(GoldenModel, AnyThreadsGiveTheSameBits) {
  std::vector<float> first;
  for (const int threads : {1, 2, 4, 8}) {
    auto engine = open_engine(path(), options_for(golden_.tokens, threads));
    ASSERT_TRUE(engine);
    EXPECT_EQ(engine->info().threads, threads);
    const std::vector<float> logits = all_logits(*engine, tokens(), {13, 1, 1, 64});
    ASSERT_FALSE(logits.empty());
    if (first.empty()) first = logits;
    EXPECT_EQ(logits, first) << threads << " threads";
  }
}

// Cut off, go another way, cut off again, and return: what was forgotten must leave no trace.
TEST_P(GoldenModel, TruncatedSequencesContinueAsNew) {
  auto engine = open_engine(path(), options_for(golden_.tokens, 2));
  ASSERT_TRUE(engine);
  auto sequence = engine->new_sequence();
  ASSERT_TRUE(sequence.ok());
  const std::vector<float> whole = all_logits(**sequence, tokens(), {INT32_MAX});
  ASSERT_FALSE(whole.empty());
  for (const int64_t keep : {total() - 1, total() / 2, int64_t{1}, int64_t{0}}) {
    const int64_t kept = (*sequence)->truncate(keep);
    EXPECT_EQ((*sequence)->length(), kept);
    if (is_recurrent(*engine)) EXPECT_LE(kept, keep) << "returns to the nearest state that it has";
    else EXPECT_EQ(kept, keep);
    const auto k = static_cast<size_t>(kept);
    const std::vector<int32_t> astray(tokens().size() - k, 3);
    ASSERT_TRUE((*sequence)->forward(astray).ok());
    EXPECT_EQ((*sequence)->truncate(kept), kept);
    auto rest = (*sequence)->forward(tokens().subspan(k), true);
    ASSERT_TRUE(rest.ok()) << rest.status().to_string();
    const std::vector<float> want(whole.end() - static_cast<int64_t>(rest->size()), whole.end());
    EXPECT_EQ(std::vector<float>(rest->begin(), rest->end()), want) << "after keeping " << keep;
  }
}

// Only the last row, when only that is asked for; and two sequences side by side do not touch each other.
TEST_P(GoldenModel, SequencesAreApart) {
  auto engine = open_engine(path(), options_for(golden_.tokens, 2));
  ASSERT_TRUE(engine);
  auto a = engine->new_sequence(), b = engine->new_sequence();
  ASSERT_TRUE(a.ok() && b.ok());
  if (depends_on_length(*engine)) return;  // a token alone is another prompt
  const std::vector<float> whole = all_logits(*engine, tokens());
  ASSERT_FALSE(whole.empty());
  for (size_t i = 0; i < tokens().size(); ++i) {
    auto row = (*a)->forward(tokens().subspan(i, 1));
    ASSERT_TRUE(row.ok()) << row.status().to_string();
    ASSERT_EQ(static_cast<int64_t>(row->size()), vocab());
    ASSERT_TRUE(std::equal(row->begin(), row->end(), whole.begin() + static_cast<int64_t>(i) * vocab()))
        << "token " << i;
    const auto other = static_cast<int32_t>((tokens()[i] + 5) % vocab());
    ASSERT_TRUE((*b)->forward({&other, 1}).ok());
  }
}

std::string golden_test_name(const ::testing::TestParamInfo<std::string>& info) {
  const size_t slash = info.param.find('/');
  return slash == std::string::npos ? info.param : info.param.substr(0, slash) + "_gguf";
}
INSTANTIATE_TEST_SUITE_P(All, GoldenModel, ::testing::ValuesIn(golden_models()), golden_test_name);

TEST(GoldenModels, AreAllThere) { EXPECT_GE(golden_models().size(), 40u); }

TEST(GoldenModels, ForwardNamesWhatIsWrong) {
  const Golden golden = load_golden(golden_root() + "/llama_gqa");
  TextEngineOptions options = options_for(golden.tokens, 1);
  options.context = 16;
  auto engine = open_engine(golden_root() + "/llama_gqa", options);
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->info().context, 16);
  auto sequence = engine->new_sequence();
  ASSERT_TRUE(sequence.ok());
  for (const int32_t id : {-1, 64, INT32_MAX, INT32_MIN}) {
    auto r = (*sequence)->forward({&id, 1});
    ASSERT_FALSE(r.ok()) << id;
    EXPECT_EQ(r.status().code(), Code::invalid_argument);
    EXPECT_NE(r.status().message().find(std::to_string(id)), std::string::npos) << r.status().message();
    EXPECT_EQ((*sequence)->length(), 0) << "a refused token must not stay in the sequence";
  }
  auto long_prompt = (*sequence)->forward(golden.tokens);
  ASSERT_FALSE(long_prompt.ok());
  EXPECT_EQ(long_prompt.status().code(), Code::invalid_argument);
  EXPECT_NE(long_prompt.status().message().find("30"), std::string::npos) << long_prompt.status().message();
  EXPECT_NE(long_prompt.status().message().find("16"), std::string::npos) << long_prompt.status().message();
  EXPECT_FALSE((*sequence)->forward({}).ok());
  // Full to the last place is fine; one more is not; a shortened one goes on.
  const std::span<const int32_t> tokens = golden.tokens;
  ASSERT_TRUE((*sequence)->forward(tokens.first(16)).ok());
  EXPECT_FALSE((*sequence)->forward(tokens.subspan(16, 1)).ok());
  EXPECT_EQ((*sequence)->length(), 16);
  (*sequence)->truncate(15);
  EXPECT_TRUE((*sequence)->forward(tokens.subspan(15, 1)).ok());
}

}  // namespace
}  // namespace redline::testing
