// Models in every weight type, against PyTorch transformers on the same weights as the gguf package unpacks them
// (tests/golden/make_golden.py): the engine's own random:tiny:TYPE (--random), and the tiny model of
// ../shared/models/quant-vectors, which llama.cpp quantized (--quant).
#include "models/files/random_model.h"
#include "support/golden.h"

namespace redline::testing {
namespace {

/// A row's largest error over its largest logit, and the root mean square error over that of the logits.
struct Bound {
  double row, rms;
};
// docs/numerics.md derives these. Under "auto" the cached keys and values are float16; with block formats activations
// are also rounded to int8, in steps shared by 32 elements, at the same cost whatever the format, and in many rows on
// AVX-512 with VNNI weights too.
constexpr Bound kFloat32 = {2e-5, 2e-5}, kInterpreter = {5e-6, 5e-6}, kHalfCache = {4e-3, 2e-3},
                kInt8 = {9.5e-2, 5.3e-2}, kRequantized = {2e-1, 1.1e-1};
constexpr Bound kF16Tiles = {2.7e-2, 1.5e-2}, kBF16Tiles = {2e-2, 1.1e-2}, kF32Tiles = {9e-3, 5e-3};

constexpr int64_t kManyRows = 80;

struct QuantCase {
  const char* name;        ///< of llama.cpp's files in capitals
  Bound automatic, tiles;  ///< of `auto`, in float32 and with products or attention in bfloat16
};
void PrintTo(const QuantCase& c, std::ostream* out) { *out << c.name; }
constexpr QuantCase kCases[] = {
    {"F32", kHalfCache, kF32Tiles}, {"F16", kHalfCache, kF16Tiles}, {"BF16", kHalfCache, kBF16Tiles},
    {"Q4_0", kInt8, kInt8},         {"Q4_1", kInt8, kInt8},         {"Q5_0", kInt8, kInt8},
    {"Q5_1", kInt8, kInt8},         {"Q8_0", kInt8, kInt8},         {"Q2_K", kInt8, kInt8},
    {"Q3_K_M", kInt8, kInt8},       {"Q4_K_M", kInt8, kInt8},       {"Q5_K_M", kInt8, kInt8},
    {"Q6_K", kInt8, kInt8},         {"IQ4_NL", kInt8, kInt8},       {"IQ4_XS", kInt8, kInt8},
    {"IQ3_S", kInt8, kInt8},        {"TQ1_0", kInt8, kInt8},        {"TQ2_0", kInt8, kInt8},
    {"MXFP4_MOE", kInt8, kInt8},
};
constexpr QuantCase kRandomCases[] = {
    {"f32", kHalfCache, kF32Tiles}, {"f16", kHalfCache, kF16Tiles}, {"bf16", kHalfCache, kBF16Tiles},
    {"q4_0", kInt8, kInt8},         {"q4_1", kInt8, kInt8},         {"q5_0", kInt8, kInt8},
    {"q5_1", kInt8, kInt8},         {"q8_0", kInt8, kInt8},         {"q2_k", kInt8, kInt8},
    {"q3_k", kInt8, kInt8},         {"q4_k", kInt8, kInt8},         {"q5_k", kInt8, kInt8},
    {"q6_k", kInt8, kInt8},         {"iq4_nl", kInt8, kInt8},       {"iq4_xs", kInt8, kInt8},
    {"iq3_s", kInt8, kInt8},        {"tq1_0", kInt8, kInt8},        {"tq2_0", kInt8, kInt8},
    {"mxfp4", kInt8, kInt8},
};

class QuantizedModel : public ::testing::TestWithParam<QuantCase> {
 protected:
  void SetUp() override {
    const std::string name = GetParam().name;
    const bool is_random = std::islower(name.front());
    path_ = is_random ? "random:tiny:" + name : REDLINE_SHARED_DIR "/models/quant-vectors/tiny-" + name + ".gguf";
    if (!is_random && !std::filesystem::exists(path_)) GTEST_SKIP() << path_ << " is not there";
    const std::string folder = golden_root() + (is_random ? "/random" : "/quant");
    tokens_ = read_tokens(read_json(folder + "/tokens.json"));
    ASSERT_FALSE(tokens_.empty());
    auto want = read_npy(fmt::format("{}/{}.npy", folder, GetParam().name));
    ASSERT_TRUE(want.ok()) << want.status().message();
    want_ = std::move(want).value();
  }

  /// A failed test and nullptr where it cannot be opened.
  std::unique_ptr<TextEngine> open(const TextEngineOptions& options) const {
    auto engine = TextEngine::open(path_, options);
    EXPECT_TRUE(engine.ok()) << path_ << ": " << engine.status().to_string();
    return engine.ok() ? std::move(engine).value() : nullptr;
  }

  /// The golden file holds the last rows only.
  void compare(ComputeType dtype, bool interpret, Bound bound, Bound rounded) {
    TextEngineOptions options;
    options.threads = 2;
    options.dtype = dtype;
    options.use_interpreter = interpret;
    options.context = 64;
    auto engine = open(options);
    ASSERT_TRUE(engine);
    const bool rounds = dtype == ComputeType::kAuto && auto_rounding(engine->info().weight_types).any();
    if (rounds) bound = rounded;
    const std::vector<float> logits = all_logits(*engine, tokens_);
    ASSERT_EQ(static_cast<int64_t>(logits.size()), static_cast<int64_t>(tokens_.size()) * want_.dim(1));
    const Difference d = difference(logits.data() + logits.size() - want_.values.size(), want_.values.data(),
                                    want_.dim(0), want_.dim(1));
    EXPECT_LE(d.worst_row, bound.row);
    EXPECT_LE(d.rms, bound.rms);
    RecordProperty("relative_error", fmt::format("{:.2e}", d.worst_row));
    RecordProperty("rms_error", fmt::format("{:.2e}", d.rms));
    // Rows one at a time take the kernels for few rows: the same sums, unless those for many round otherwise.
    const std::vector<float> few = all_logits(*engine, tokens_, {7, 1, 1, 1, 2});
    if (!rounds) {
      EXPECT_EQ(few, logits);
    } else {
      const Difference f =
          difference(few.data() + few.size() - want_.values.size(), want_.values.data(), want_.dim(0), want_.dim(1));
      EXPECT_LE(f.worst_row, bound.row);
      EXPECT_LE(f.rms, bound.rms);
    }
    options.threads = 1;
    auto alone = open(options);
    ASSERT_TRUE(alone);
    EXPECT_EQ(all_logits(*alone, tokens_), logits);
  }

  /// The text so often in one step that the kernels for many rows are taken.
  void compare_many_rows(Bound bound, Bound rounded) {
    TextEngineOptions options;
    options.context = 64;
    std::vector<float> of_threads[2];
    for (const int threads : {1, 2}) {
      options.threads = threads;
      auto engine = open(options);
      ASSERT_TRUE(engine);
      if (auto_rounding(engine->info().weight_types).any()) bound = rounded;
      const int64_t copies = kManyRows / std::ssize(tokens_) + 1, size = want_.dim(0) * want_.dim(1);
      std::vector<std::unique_ptr<Sequence>> sequences;
      std::vector<float>& logits = of_threads[threads - 1];
      logits.resize(static_cast<size_t>(copies * size));
      std::vector<BatchEntry> batch;
      for (int64_t i = 0; i < copies; ++i) {
        sequences.push_back(engine->new_sequence().value());
        batch.push_back({sequences.back().get(), tokens_,
                         std::span(logits).subspan(static_cast<size_t>(i * size), static_cast<size_t>(size))});
      }
      const Status done = engine->run_batch(batch);
      ASSERT_TRUE(done.ok()) << done.to_string();
      const Difference d = difference(logits.data(), want_.values.data(), want_.dim(0), want_.dim(1));
      EXPECT_LE(d.worst_row, bound.row);
      EXPECT_LE(d.rms, bound.rms);
      RecordProperty("relative_error", fmt::format("{:.2e}", d.worst_row));
      RecordProperty("rms_error", fmt::format("{:.2e}", d.rms));
      for (int64_t i = 1; i < copies; ++i)
        EXPECT_TRUE(std::equal(logits.begin(), logits.begin() + size, logits.begin() + i * size)) << "copy " << i;
    }
    EXPECT_EQ(of_threads[0], of_threads[1]);
  }

  std::string path_;
  std::vector<int32_t> tokens_;
  NpyArray want_;
};

TEST_P(QuantizedModel, Float32MatchesUnpackedWeights) { compare(ComputeType::kF32, false, kFloat32, kFloat32); }
TEST_P(QuantizedModel, InterpreterMatchesUnpackedWeights) {
  compare(ComputeType::kF32, true, kInterpreter, kInterpreter);
}
TEST_P(QuantizedModel, AutoStaysWithinItsBound) {
  compare(ComputeType::kAuto, false, GetParam().automatic, GetParam().tiles);
}

TEST_P(QuantizedModel, ManyRowsStayWithinTheirBound) {
  const ActivationLayouts layouts = choose_linear(*cpu_kernels().value(), DType::kQ6_K, false).layouts;
  const bool requantizes = layouts.for_rows(kManyRows) == ActivationLayout::kI8TiledGroups;
  const bool is_int8 = GetParam().automatic.rms == kInt8.rms;
  if (is_int8 && requantizes) compare_many_rows(kRequantized, kRequantized);
  else compare_many_rows(GetParam().automatic, GetParam().tiles);
}

INSTANTIATE_TEST_SUITE_P(Random, QuantizedModel, ::testing::ValuesIn(kRandomCases),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(All, QuantizedModel, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace redline::testing
