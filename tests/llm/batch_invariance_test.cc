// A sequence gets the same bits alone and in any batch, for any cut of its prompt, any number of threads, and whatever
// state is reused.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "kernels/cpu/cpu_kernels.h"
#include "models/files/random_model.h"
#include "redline/text.h"
#include "support/bundled.h"
#include "support/golden.h"
#include "support/temporary_folder.h"

namespace redline::testing {
namespace {

struct BatchInvarianceText {
  std::vector<int32_t> prompt, more;  ///< `more` is appended token by token
};
std::vector<BatchInvarianceText> texts(const TextEngine& engine, size_t count, int64_t longest) {
  const auto vocab = static_cast<int32_t>(engine.info().vocab_size);
  std::vector<BatchInvarianceText> all(count);
  for (size_t i = 0; i < count; ++i) {
    const auto n = static_cast<int32_t>(i);
    const int64_t length = 1 + (n * 13 + 40) % longest;
    for (int32_t k = 0; k < length; ++k) all[i].prompt.push_back((n * 31 + k * 17 + k * k) % vocab);
    for (int32_t k = 0; k < 2; ++k) all[i].more.push_back((n * 7 + k * 5 + 3) % vocab);
  }
  return all;
}

/// Logits after the prompt and after each further token, of all sequences in common steps; prompts in chunks of
/// `chunk`.
std::vector<std::vector<float>> run_batch_invariance(TextEngine& engine, std::span<const BatchInvarianceText> texts,
                                                     int64_t chunk) {
  const auto vocab = static_cast<size_t>(engine.info().vocab_size);
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<std::vector<float>> logits(texts.size());
  std::vector<std::vector<float>> result(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    sequences.push_back(engine.new_sequence().value());
    logits[i].resize(vocab);
  }
  const auto step = [&](const std::function<std::span<const int32_t>(size_t)>& tokens_of) {
    std::vector<BatchEntry> batch;
    std::vector<size_t> which;
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::span<const int32_t> tokens = tokens_of(i);
      if (tokens.empty()) continue;
      batch.push_back({sequences[i].get(), tokens, logits[i]});
      which.push_back(i);
    }
    if (batch.empty()) return false;
    EXPECT_TRUE(engine.run_batch(batch).ok());
    for (const size_t i : which)
      if (sequences[i]->length() >= std::ssize(texts[i].prompt))
        result[i].insert(result[i].end(), logits[i].begin(), logits[i].end());
    return true;
  };
  while (step([&](size_t i) {
    const auto rest = std::span(texts[i].prompt).subspan(static_cast<size_t>(sequences[i]->length()));
    return rest.first(std::min(rest.size(), static_cast<size_t>(chunk)));
  })) {}
  for (size_t k = 0; k < texts[0].more.size(); ++k)
    step([&](size_t i) { return std::span(texts[i].more).subspan(k, 1); });
  return result;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Steps of at most `max_rows` tokens.
void check_batch_invariance(const std::string& path, TextEngineOptions options, int64_t longest,
                            int64_t max_rows = 1024) {
  options.threads = 1;
  options.max_batch_tokens = max_rows;
  options.prefix_cache = false;
  const auto alone = open_engine(path, options);
  ASSERT_TRUE(alone);
  longest = std::min(longest, alone->info().context - 4);
  const std::vector<BatchInvarianceText> all = texts(*alone, 64, longest);
  std::vector<std::vector<float>> want;
  for (const BatchInvarianceText& text : all) want.push_back(run_batch_invariance(*alone, {&text, 1}, longest)[0]);
  for (const int threads : {1, 2}) {
    options.threads = threads;
    const auto engine = open_engine(path, options);
    const auto compare = [&](size_t count, int64_t chunk) {
      chunk = std::min(chunk, max_rows / static_cast<int64_t>(count));
      const auto got = run_batch_invariance(*engine, std::span(all).first(count), chunk);
      for (size_t i = 0; i < count; ++i)
        EXPECT_TRUE(same_bits(got[i], want[i])) << path << ": sequence " << i << " of " << count << ", chunks of "
                                                << chunk << ", " << threads << " threads";
    };
    if (threads == 1) {
      for (const int64_t chunk : {1, 5, 33}) compare(7, chunk);
    } else {
      for (const size_t count : {2, 7, 16}) compare(count, longest);
      for (const int64_t chunk : {3, 4, 16}) compare(7, chunk);
      compare(64, 9);
    }
  }
}

/// Up to this many rows, `auto` has one kernel for block formats on CPUs without a tile unit.
constexpr int64_t kRowsOfOneKernel = 64;

struct Promise {
  TextEngineOptions options;
  int64_t max_rows = 1024;  ///< of a step
};
std::vector<Promise> promised(bool has_block_formats) {
  Promise f32, automatic, asked;
  f32.options.dtype = ComputeType::kF32;
  asked.options.batch_invariant = true;
  if (has_block_formats) automatic.max_rows = kRowsOfOneKernel;
  std::vector<Promise> all = {f32, asked};
  if (!cpu_kernels().value()->has_tile_unit) all.push_back(automatic);
  return all;
}

TEST(BatchInvariance, GoldenModels) {
  for (const std::string model : {"llama_gqa", "llama_hd80", "mistral_window1", "qwen2_layer_types",
                                  "qwen3_bias_window", "smollm2", "llama_hidden36_hd48"})
    for (const Promise& each : promised(false))
      check_batch_invariance(golden_root() + "/" + model, each.options, 60, each.max_rows);
}

TEST(BatchInvariance, WeightTypes) {
  const TemporaryFolder folder;
  for (const std::string type : {"bf16", "f16", "q4_0", "q8_0", "q4_k", "iq4_xs"}) {
    const std::string path = folder.path() + "/" + type + ".gguf";
    ASSERT_TRUE(save_random_model("tiny:" + type, path).ok());
    for (const Promise& each : promised(type != "bf16" && type != "f16"))
      check_batch_invariance(path, each.options, 24, each.max_rows);
  }
}

TEST(BatchInvariance, BundledModel) {
  for (Promise& each : promised(false)) {
    each.options.context = 200;
    check_batch_invariance(kTales, each.options, 60, each.max_rows);
  }
}

// Greedy texts with their log probabilities: alone in an engine that reuses nothing, and 64 at once, twice, in one
// whose cache holds some of them at a time.
TEST(BatchInvariance, GreedyTextsWhateverIsReused) {
  for (const Promise& each : promised(false)) {
    TextEngineOptions options = each.options;
    options.context = 256;
    options.threads = 1;
    options.max_batch_tokens = std::min<int64_t>(each.max_rows, 512);
    options.prefix_cache = false;
    const auto alone = open_engine(kTales, options);
    struct Output {
      std::vector<int32_t> tokens;
      std::vector<float> logprobs;
      bool operator==(const Output&) const = default;
    };
    std::vector<GenerateRequest> requests(64);
    std::vector<Output> want(64), got(64);
    const auto common = texts(*alone, 1, 80)[0].prompt;
    const auto own = texts(*alone, 64, 60);
    const auto collect = [](Output& out) {
      return [&out](const TextPiece& piece) {
        if (piece.token < 0) return true;
        out.tokens.push_back(piece.token);
        out.logprobs.push_back(piece.logprob);
        return true;
      };
    };
    for (size_t i = 0; i < requests.size(); ++i) {
      GenerateRequest& r = requests[i];
      if (i % 2) r.prompt = common;
      r.prompt.append_prompt(own[i].prompt);
      r.sampling.temperature = 0;
      r.max_tokens = 24;
      r.num_logprobs = 0;
      r.ignore_stop_tokens = true;
      ASSERT_TRUE(alone->generate(r, collect(want[i])).ok());
    }
    options.prefix_cache = true;
    options.threads = 2;
    options.cache_tokens = 3000;
    options.max_batch_tokens = std::min<int64_t>(each.max_rows, 100);
    const auto engine = open_engine(kTales, options);
    int64_t cached = 0;
    for (int round = 0; round < 2; ++round) {
      got.assign(64, {});
      std::vector<std::shared_ptr<Generation>> running;
      for (size_t i = 0; i < requests.size(); ++i)
        running.push_back(engine->submit(requests[i], collect(got[i])).value());
      for (size_t i = 0; i < requests.size(); ++i) {
        const auto result = running[i]->wait();
        ASSERT_TRUE(result.ok());
        cached += result->cached_tokens;
        EXPECT_TRUE(got[i] == want[i]) << "request " << i << " in round " << round;
      }
    }
    EXPECT_GT(cached, 1000);
  }
}

}  // namespace
}  // namespace redline::testing
