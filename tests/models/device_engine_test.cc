// Tests of the engine's handling of states on a tile device beside the CPU: prefixes that are reused, pages that
// sequences share, preemption, beams, constraints, adapters and pages in files, over the golden models in float32.
#include <gtest/gtest.h>

#include "redline/text.h"
#include "support/bundled.h"
#include "support/golden.h"
#include "support/temporary_folder.h"
#include "support/test_device.h"

namespace redline {
namespace {

// Keys and values; in a window; with heads that share a latent; recurrent states beside them.
const std::vector<std::string> kDeviceModels = {"llama_gqa", "mistral_window", "deepseek_v3", "qwen3_next", "mamba2"};

std::vector<int32_t> device_tokens(int64_t count, int64_t vocab, int64_t seed) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>((seed * 31 + i * 17 + i * i) % vocab));
  return tokens;
}

/// An engine on the CPU, and one on the device.
struct Engines {
  std::unique_ptr<TextEngine> cpu, device;

  explicit Engines(const std::string& path, TextEngineOptions options = {}) {
    options.threads = 2;
    options.dtype = ComputeType::kF32;
    if (options.max_sequences == TextEngineOptions().max_sequences) options.max_sequences = 8;
    for (auto* engine : {&cpu, &device}) {
      options.device = engine == &cpu ? "cpu" : test::test_device();
      auto opened = TextEngine::open(path, options);
      EXPECT_TRUE(opened.ok()) << path << ": " << opened.status().to_string();
      if (opened.ok()) *engine = std::move(opened).value();
    }
  }
  static Engines of_golden(const std::string& model, const TextEngineOptions& options = {}) {
    return Engines(testing::golden_root() + "/" + model, options);
  }
  bool is_open() const { return cpu && device; }
  std::vector<int32_t> tokens(int64_t count, int64_t seed) const {
    return device_tokens(count, cpu->info().vocab_size, seed);
  }
  GenerateRequest request(std::vector<int32_t> prompt, int64_t max_tokens) const {
    GenerateRequest request;
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    request.ignore_stop_tokens = true;
    request.sampling.temperature = 0;
    return request;
  }
  /// That of the device.
  GenerateResult expect_alike(const GenerateRequest& request) const {
    const auto want = cpu->generate(request), got = device->generate(request);
    EXPECT_TRUE(want.ok()) << want.status().to_string();
    EXPECT_TRUE(got.ok()) << got.status().to_string();
    if (!want.ok() || !got.ok()) return {};
    EXPECT_EQ(got->tokens, want->tokens);
    EXPECT_EQ(got->text, want->text);
    EXPECT_EQ(got->cached_tokens, want->cached_tokens);
    EXPECT_EQ(got->cache_miss, want->cache_miss);
    EXPECT_EQ(got->reason, want->reason);
    return *got;
  }
};

std::vector<GenerateResult> run_together(TextEngine& engine, const std::vector<GenerateRequest>& requests) {
  std::vector<std::shared_ptr<Generation>> running;
  for (const GenerateRequest& request : requests) {
    auto generation = engine.submit(request);
    EXPECT_TRUE(generation.ok()) << generation.status().to_string();
    if (generation.ok()) running.push_back(*generation);
  }
  std::vector<GenerateResult> results;
  for (const auto& generation : running) {
    auto result = generation->wait();
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    results.push_back(result.ok() ? std::move(result).value() : GenerateResult());
  }
  return results;
}

TEST(DeviceEngine, ASecondTurnReusesTheFirst) {
  for (const std::string& model : kDeviceModels) {
    SCOPED_TRACE(model);
    TextEngineOptions options;
    const Engines engines = Engines::of_golden(model, options);
    options.prefix_cache = false;
    const Engines without = Engines::of_golden(model, options);
    ASSERT_TRUE(engines.is_open() && without.is_open());
    GenerateRequest turn = engines.request(engines.tokens(50, 1), 6);
    for (int i = 0; i < 3; ++i) {
      const GenerateResult got = engines.expect_alike(turn);
      EXPECT_EQ(got.tokens, without.expect_alike(turn).tokens);
      EXPECT_EQ(got.cached_tokens > 0, i > 0) << cache_miss_name(got.cache_miss);
      turn.prompt.append(got.tokens);
      for (const int32_t token : engines.tokens(5, 7 + i)) turn.prompt.push_back(token);
    }
    // Another text after the same beginning, in the middle of a page.
    turn.prompt.truncate(45);
    for (const int32_t token : engines.tokens(9, 3)) turn.prompt.push_back(token);
    engines.expect_alike(turn);
  }
}

/// Logits of sequences with a common beginning, after each of some steps of one row for each.
std::vector<float> logits_after_beginning(TextEngine& engine, int64_t beginning, bool shares) {
  constexpr size_t kSequences = 5;
  const int64_t vocab = engine.info().vocab_size;
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (size_t i = 0; i < kSequences; ++i) {
    sequences.push_back(shares && i > 0 ? sequences[0]->fork().value() : engine.new_sequence().value());
    if (shares && i > 0) continue;
    const Status status = sequences[i]->append(device_tokens(beginning, vocab, 1), {});
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  std::vector<float> all;
  for (int64_t step = 0; step < 3; ++step) {
    std::vector<std::vector<int32_t>> more(kSequences);
    std::vector<float> logits(kSequences * static_cast<size_t>(vocab));
    std::vector<BatchEntry> batch;
    for (size_t i = 0; i < kSequences; ++i) {
      more[i] = device_tokens(1, vocab, 7 * static_cast<int64_t>(i) + step);
      batch.push_back({sequences[i].get(), more[i],
                       std::span(logits).subspan(i * static_cast<size_t>(vocab), static_cast<size_t>(vocab))});
    }
    const Status status = engine.run_batch(batch);
    EXPECT_TRUE(status.ok()) << status.to_string();
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

// Long enough that the step reads the shared pages once for all its sequences.
TEST(DeviceEngine, SequencesShareTheirPages) {
  for (const std::string& model : kDeviceModels) {
    SCOPED_TRACE(model);
    TextEngineOptions options;
    options.context = 640;
    options.prefix_cache = false;
    const Engines engines = Engines::of_golden(model, options);
    ASSERT_TRUE(engines.is_open());
    const std::vector<float> own = logits_after_beginning(*engines.device, 520, false),
                             shared = logits_after_beginning(*engines.device, 520, true),
                             want = logits_after_beginning(*engines.cpu, 520, true);
    ASSERT_EQ(shared.size(), want.size());
    float most = 0, error = 0, apart = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      most = std::max(most, std::abs(want[i]));
      error = std::max(error, std::abs(shared[i] - want[i]));
      apart = std::max(apart, std::abs(shared[i] - own[i]));
    }
    EXPECT_LE(error, 2e-5F * most);
    EXPECT_EQ(apart, 0);
  }
}

// A cache that does not hold all requests: some are taken back and computed again.
TEST(DeviceEngine, PreemptedRequestsGoOn) {
  for (const std::string& model : kDeviceModels) {
    SCOPED_TRACE(model);
    TextEngineOptions options;
    options.cache_tokens = 4 * 32;
    options.context = 96;
    const Engines engines = Engines::of_golden(model, options);
    options.cache_tokens = 0;
    const Engines roomy = Engines::of_golden(model, options);
    ASSERT_TRUE(engines.is_open() && roomy.is_open());
    std::vector<GenerateRequest> requests;
    for (int64_t i = 0; i < 4; ++i) requests.push_back(engines.request(engines.tokens(20 + i, i), 40));
    const auto got = run_together(*engines.device, requests);
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(got[i].tokens, roomy.expect_alike(requests[i]).tokens) << i;
    // Recurrent states alone take no pages as a text grows.
    EXPECT_TRUE(model == "mamba2" || engines.device->stats().preemptions > 0);
  }
}

TEST(DeviceEngine, BeamsAreThoseOfTheCpu) {
  for (const std::string& model : kDeviceModels) {
    SCOPED_TRACE(model);
    const Engines engines = Engines::of_golden(model);
    ASSERT_TRUE(engines.is_open());
    BeamSearchRequest request;
    request.prompt = engines.tokens(20, 2);
    request.beam_width = 3;
    request.max_tokens = 8;
    const auto want = beam_search(*engines.cpu, request), got = beam_search(*engines.device, request);
    ASSERT_TRUE(want.ok() && got.ok()) << got.status().to_string();
    ASSERT_EQ(got->size(), want->size());
    for (size_t i = 0; i < want->size(); ++i) {
      EXPECT_EQ((*got)[i].tokens, (*want)[i].tokens) << i;
      EXPECT_NEAR((*got)[i].logprob, (*want)[i].logprob, 1e-4) << i;
    }
  }
}

// Pages that one engine has stored in a folder are read by another one. A GPU's are not stored yet.
TEST(DeviceEngine, PagesComeBackFromFiles) {
  if (test::test_device() != "emu") GTEST_SKIP() << "its pages are not kept in files";
  for (const char* model : {"llama_gqa", "mistral_window"}) {
    SCOPED_TRACE(model);
    const testing::TemporaryFolder folder;
    TextEngineOptions options;
    options.cache_folder = folder.path() + "/cache";
    std::vector<int32_t> tokens;
    for (int run = 0; run < 2; ++run) {
      const Engines engines = Engines::of_golden(model, options);
      ASSERT_TRUE(engines.is_open());
      const GenerateResult got = engines.expect_alike(engines.request(engines.tokens(70, 4), 4));
      EXPECT_EQ(got.cached_tokens >= 32, run == 1) << got.cached_tokens;
      EXPECT_TRUE(run == 0 || got.tokens == tokens);
      tokens = got.tokens;
    }
  }
}

// One batch of the bundled model has a constraint, log-probabilities and a sampler, which the host computes, an
// adapter, and a prefix that is reused.
TEST(DeviceEngine, ConstraintsAdaptersAndPrefixesInOneBatch) {
  TextEngineOptions options;
  options.context = 96;
  options.max_adapter_rank = 8;
  const Engines engines(kTales, options);
  ASSERT_TRUE(engines.is_open());
  const std::string adapters = kTales + "/adapters/";
  const std::string name = testing::read_json(kTales + "/reference/adapters.json")["adapters"].begin().key();
  for (TextEngine* engine : {engines.cpu.get(), engines.device.get()})
    ASSERT_EQ(engine->load_adapter(name, adapters + name).message(), "");
  std::vector<int32_t> prompt = *engines.cpu->encode("Once upon a time there was a little dog who lived in a house");
  while (prompt.size() < 40) prompt.insert(prompt.end(), prompt.begin() + 1, prompt.begin() + 9);
  const GenerateRequest plain = engines.request(prompt, 4);
  GenerateRequest choice = plain, adapted = plain, scored = plain, drawn = plain;
  choice.constraint.kind = OutputConstraint::Kind::kChoice;
  choice.constraint.choices = {" yellow", " purple"};
  adapted.adapters = {{name, 1.0}};
  scored.num_logprobs = 2;
  scored.sampling.logit_bias = {{prompt[1], 4.0F}};
  drawn.sampling.temperature = 1;
  drawn.sampling.xtc_probability = 0.5F;  // a sampler of the host
  drawn.sampling.seed = 3;
  const std::vector<GenerateRequest> requests = {plain, choice, adapted, scored, drawn};
  (void)engines.device->generate(plain);  // the prefix of all but the adapted one
  const auto got = run_together(*engines.device, requests);
  int64_t reused = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto want = engines.cpu->generate(requests[i]);
    ASSERT_TRUE(want.ok()) << want.status().to_string();
    EXPECT_EQ(got[i].text, want->text) << i;
    EXPECT_EQ(got[i].tokens, want->tokens) << i;
    reused += got[i].cached_tokens >= 32;
  }
  EXPECT_EQ(reused, 4);
  EXPECT_NE(got[2].tokens, got[0].tokens);
}

}  // namespace
}  // namespace redline
