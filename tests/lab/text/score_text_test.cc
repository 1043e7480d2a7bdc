#include "lab/text/score_text.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "lab/text/collect_imatrix.h"
#include "redline/text.h"
#include "support/bundled.h"
#include "support/golden.h"

namespace redline::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kText =
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a "
    "big "
    "dog. The dog was very happy and wanted to play with her. Lily and the dog played all day long.";

std::unique_ptr<TextEngine> open(ComputeType dtype, int64_t context = 32) {
  TextEngineOptions options;
  options.threads = 2;
  options.dtype = dtype;
  options.context = context;
  auto engine = TextEngine::open(kTales, options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

// -ln softmax and KL(p || q), directly from the logits.
TEST(ScoreText, WindowsHaveTheSumsOfTheFormulas) {
  const auto model = open(ComputeType::kAuto), base = open(ComputeType::kF32);
  ASSERT_TRUE(model && base);
  const std::vector<int32_t> tokens = model->encode(kText).value();
  ASSERT_GE(tokens.size(), 48u);
  constexpr int64_t kWindow = 24;
  const auto scores = score_windows(*model, base.get(), tokens, {kWindow, 2, tokens[0]}, [] { return true; });
  ASSERT_TRUE(scores.ok()) << scores.status().to_string();
  const int64_t vocab = model->info().vocab_size;
  const auto distributions = [&](TextEngine& engine, std::span<const int32_t> ids) {
    const auto sequence = engine.new_sequence().value();
    std::vector<std::vector<double>> rows;
    const std::vector<float> logits = sequence->forward(ids, true).value();
    for (size_t r = 0; r < ids.size(); ++r) {
      std::vector<double> p(logits.begin() + static_cast<int64_t>(r) * vocab,
                            logits.begin() + static_cast<int64_t>(r + 1) * vocab);
      double sum = 0;
      for (double& x : p) sum += x = std::exp(x);
      for (double& x : p) x /= sum;
      rows.push_back(std::move(p));
    }
    return rows;
  };
  double nats = 0, divergence = 0;
  for (size_t w = 0; w < 2; ++w) {
    std::vector<int32_t> ids(tokens.begin() + static_cast<int64_t>(w) * kWindow,
                             tokens.begin() + static_cast<int64_t>(w + 1) * kWindow);
    ids[0] = tokens[0];
    const auto q = distributions(*model, ids), p = distributions(*base, ids);
    for (size_t i = kWindow / 2; i + 1 < kWindow; ++i) {
      nats -= std::log(q[i][static_cast<size_t>(ids[i + 1])]);
      for (size_t v = 0; v < q[i].size(); ++v) divergence += p[i][v] * std::log(p[i][v] / q[i][v]);
    }
  }
  EXPECT_EQ(scores->nats.count, 22);
  // Rows of another step size may round differently: products of bfloat16 weights (docs/numerics.md).
  EXPECT_NEAR(scores->nats.mean(), nats / 22, 1e-2);
  EXPECT_NEAR(scores->divergence.mean(), divergence / 22, 1e-3);
  EXPECT_GE(scores->same_top.mean(), 0.9);
  EXPECT_LE(scores->divergence_quantile(0.5), scores->divergence_quantile(1));
  const auto same = score_windows(*base, base.get(), tokens, {kWindow, 1}, [] { return true; });
  ASSERT_TRUE(same.ok());
  EXPECT_LT(same->divergence.mean(), 1e-12);
  EXPECT_EQ(same->same_top.mean(), 1);
  EXPECT_EQ(score_windows(*base, nullptr, tokens, {kWindow}, [] { return false; }).status().code(), Code::cancelled);
}

TEST(ScoreText, QuestionsOfSeveralShapes) {
  const auto questions = read_questions(R"([
    {"question": "a", "choices": ["x", "y"], "answer": 1},
    {"ctx": "b", "endings": ["x", "y", "z"], "label": "2"},
    {"question": "c", "choices": {"text": ["x", "y"], "label": ["P", "Q"]}, "answerKey": "Q"},
    {"query": "d", "choices": ["x", "y"], "answer": "x"},
    {"prompt": "e", "choices": ["x", "y"], "gold": "B"}])");
  ASSERT_TRUE(questions.ok()) << questions.status().to_string();
  std::vector<size_t> answers;
  for (const Question& q : *questions) answers.push_back(q.answer);
  EXPECT_THAT(answers, ElementsAre(1, 2, 1, 0, 1));
  const auto lines = read_questions(
      "{\"question\": \"a\", \"choices\": [\"x\", \"y\"], \"answer\": 0}\n\n"
      "{\"question\": \"b\", \"choices\": [\"x\", \"y\"], \"answer\": 1}\n");
  ASSERT_TRUE(lines.ok()) << lines.status().to_string();
  EXPECT_EQ(lines->size(), 2u);
  const auto fails = [](const char* text, const char* message) {
    EXPECT_THAT(read_questions(text).status().message(), HasSubstr(message));
  };
  fails("[]", "no questions");
  fails("text", "line 1 is not JSON");
  fails(R"([{"choices": ["x", "y"], "answer": 0}])", "question 1: has no text \"question\"");
  fails(R"([{"question": "a", "choices": ["x"], "answer": 0}])", "has 1 choices");
  fails(R"([{"question": "a", "choices": ["x", "y"]}])", "has no \"answer\"");
  fails(R"([{"question": "a", "choices": ["x", "y"], "answer": 2}])",
        "the answer 2 is not the index of one of its 2 choices");
  fails(R"([{"question": "a", "choices": ["x", 3], "answer": 2}])", "choices holds 3");
}

TEST(ScoreText, ChoicesThatTheModelKnows) {
  const auto model = open(ComputeType::kF32, 64);
  ASSERT_TRUE(model);
  const auto scores = score_choices(*model,
                                    {{"Once upon a", {"zebra", "time"}, 1},
                                     {"There was a little girl named", {"Lily", "of"}, 0},
                                     {"She loved to play", {"the", "outside"}, 1}},
                                    [] { return true; });
  ASSERT_TRUE(scores.ok()) << scores.status().to_string();
  EXPECT_THAT(scores->chosen, ElementsAre(1, 0, 1));
  EXPECT_EQ(scores->right.mean(), 1);
}

// The sums of squares that the compiled program collects, against the interpreter's in float64.
TEST(CollectImatrix, EqualsTheInterpreter) {
  CollectOptions options{2, ComputeType::kF32, false, 16, 2, "text"};
  const auto compiled = collect_imatrix(kTales, kText, options, [](int64_t, int64_t) { return true; });
  ASSERT_TRUE(compiled.ok()) << compiled.status().to_string();
  options.use_interpreter = true;
  const auto reference = collect_imatrix(kTales, kText, options, [](int64_t, int64_t) { return true; });
  ASSERT_TRUE(reference.ok()) << reference.status().to_string();
  EXPECT_EQ(compiled->chunks, 2);
  EXPECT_EQ(compiled->entries.size(), 7u * 8);  // q k v o gate up down of 8 layers
  ASSERT_EQ(reference->entries.size(), compiled->entries.size());
  for (const auto& [name, want] : reference->entries) {
    ASSERT_TRUE(compiled->entries.count(name)) << name;
    const ImportanceMatrix::Entry& got = compiled->entries.at(name);
    EXPECT_EQ(got.counts, std::vector<float>{32});
    ASSERT_EQ(got.sums.size(), want.sums.size());
    double difference = 0, size = 0;
    for (size_t i = 0; i < want.sums.size(); ++i) {
      difference = std::max(difference, std::abs(double{got.sums[i]} - double{want.sums[i]}));
      size = std::max(size, double{want.sums[i]});
    }
    EXPECT_LT(difference, 1e-4 * size) << name;  // float32 activations, accurate to 2e-5 after 8 layers, squared
  }
  options.use_interpreter = false;
  options.chunk_size = 4096;
  EXPECT_THAT(collect_imatrix(kTales, kText, options, [](int64_t, int64_t) { return true; }).status().message(),
              HasSubstr("one chunk of 4096 is the least"));
}

/// Each expert has the sums and the number of its own tokens.
TEST(CollectImatrix, ExpertsHaveTheirOwn) {
  CollectOptions options{2, ComputeType::kF32, false, 64, 2, "text"};
  const auto collect = [&] {
    return collect_imatrix("random:tiny-moe:f32", kText, options, [](int64_t, int64_t) { return true; });
  };
  const auto compiled = collect();
  ASSERT_TRUE(compiled.ok()) << compiled.status().to_string();
  options.use_interpreter = true;
  const auto reference = collect();
  ASSERT_TRUE(reference.ok()) << reference.status().to_string();
  constexpr int64_t kExperts = 6, kOfToken = 2, kTokens = 2 * 64;
  for (const std::string layer : {"blk.0.", "blk.1."})
    for (const std::string part : {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}) {
      const std::string name = layer + part + ".weight";
      ASSERT_TRUE(compiled->entries.count(name) && reference->entries.count(name)) << name;
      const ImportanceMatrix::Entry &got = compiled->entries.at(name), &want = reference->entries.at(name);
      ASSERT_EQ(got.counts.size(), size_t{kExperts});
      EXPECT_EQ(got.counts, want.counts) << name;
      EXPECT_EQ(std::accumulate(got.counts.begin(), got.counts.end(), 0.0f), static_cast<float>(kTokens * kOfToken));
      ASSERT_EQ(got.sums.size(), want.sums.size());
      EXPECT_EQ(got.sums.size(), size_t{kExperts * 256});
      const double size = *std::max_element(want.sums.begin(), want.sums.end());
      for (size_t i = 0; i < want.sums.size(); ++i) ASSERT_NEAR(got.sums[i], want.sums[i], 1e-4 * size) << name;
    }
  EXPECT_TRUE(compiled->entries.count("blk.0.ffn_gate_inp.weight"));
}

}  // namespace
}  // namespace redline::lab
