// Beam search against the same search by hand, in which every text is computed from its beginning, and against all
// texts.
#include <gmock/gmock.h>

#include <cmath>

#include "redline/text.h"
#include "support/bundled.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<TextEngine> open_beam_search(const std::string& path, int64_t max_sequences = 64) {
  TextEngineOptions options;
  options.threads = 2;
  options.dtype = ComputeType::kF32;  // a sequence has the same bits in any batch
  options.context = 128;
  options.max_sequences = max_sequences;
  auto engine = TextEngine::open(path, options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return std::move(engine).value();
}
const std::string kBeamSearchGolden = REDLINE_GOLDEN_DIR "/llama_gqa";

struct BeamSearchText {
  std::vector<int32_t> tokens;
  double logprob = 0;
};

std::vector<double> logprobs_after(TextEngine& engine, const std::vector<int32_t>& prompt,
                                   const std::vector<int32_t>& tokens) {
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), tokens.begin(), tokens.end());
  const auto sequence = engine.new_sequence().value();
  const std::vector<float> logits = sequence->forward(all).value();
  double best = -INFINITY, sum = 0;
  for (const float x : logits) best = std::max(best, double{x});
  for (const float x : logits) sum += std::exp(x - best);
  std::vector<double> result;
  for (const float x : logits) result.push_back(x - best - std::log(sum));
  return result;
}

double score(const BeamSearchText& text, size_t prompt, double penalty) {
  return text.logprob / std::pow(double(prompt + text.tokens.size()), penalty);
}

std::vector<BeamSearchText> search_by_hand(TextEngine& engine, const BeamSearchRequest& request) {
  std::vector<BeamSearchText> beams(1), ended;
  const std::vector<int32_t>& stops = engine.info().stop_tokens;
  for (int64_t step = 0; step < request.max_tokens; ++step) {
    std::vector<BeamSearchText> next;
    for (const BeamSearchText& beam : beams) {
      const std::vector<double> logprobs = logprobs_after(engine, request.prompt.tokens(), beam.tokens);
      std::vector<int32_t> order(logprobs.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = int32_t(i);
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t a, int32_t b) { return logprobs[size_t(a)] > logprobs[size_t(b)]; });
      order.resize(std::min(order.size(), size_t(2 * request.beam_width)));
      for (const int32_t id : order) {
        BeamSearchText text = beam;
        text.logprob += logprobs[size_t(id)];
        if (std::count(stops.begin(), stops.end(), id) > 0 && !request.ignore_stop_tokens) {
          ended.push_back(text);
        } else {
          text.tokens.push_back(id);
          next.push_back(text);
        }
      }
    }
    std::stable_sort(next.begin(), next.end(),
                     [](const BeamSearchText& a, const BeamSearchText& b) { return a.logprob > b.logprob; });
    next.resize(std::min(next.size(), size_t(request.beam_width)));
    beams = next;
  }
  ended.insert(ended.end(), beams.begin(), beams.end());
  std::stable_sort(ended.begin(), ended.end(), [&](const BeamSearchText& a, const BeamSearchText& b) {
    return score(a, request.prompt.size(), request.length_penalty) >
           score(b, request.prompt.size(), request.length_penalty);
  });
  ended.resize(std::min(ended.size(), size_t(request.beam_width)));
  return ended;
}

void expect_same(const std::vector<Beam>& beams, const std::vector<BeamSearchText>& texts,
                 const BeamSearchRequest& request) {
  ASSERT_EQ(beams.size(), texts.size());
  for (size_t i = 0; i < beams.size(); ++i) {
    EXPECT_EQ(beams[i].tokens, texts[i].tokens) << "beam " << i;
    // Each log probability is rounded to float32: below 16 by 2^-21.
    const double bound = double(request.max_tokens) * 0x1p-20;
    EXPECT_NEAR(beams[i].logprob, texts[i].logprob, bound);
    EXPECT_NEAR(beams[i].score, score(texts[i], request.prompt.size(), request.length_penalty), bound);
  }
}

TEST(BeamSearch, IsThatOfTheDefinition) {
  const auto engine = open_beam_search(kBeamSearchGolden);
  BeamSearchRequest request;
  request.prompt = {1, 5, 9, 2, 17};
  request.max_tokens = 6;
  for (const int64_t width : {1, 3, 5})
    for (const double penalty : {1.0, 0.0, 2.0}) {
      request.beam_width = width;
      request.length_penalty = penalty;
      const auto beams = beam_search(*engine, request);
      ASSERT_TRUE(beams.ok()) << beams.status().to_string();
      expect_same(*beams, search_by_hand(*engine, request), request);
    }
  request.ignore_stop_tokens = true;
  expect_same(beam_search(*engine, request).value(), search_by_hand(*engine, request), request);
}

TEST(BeamSearch, FindsTheBestOfAllTexts) {
  const auto engine = open_beam_search(kBeamSearchGolden);
  BeamSearchRequest request;
  request.prompt = {3, 1, 4};
  request.beam_width = engine->info().vocab_size;  // no beginning is dropped
  request.max_tokens = 2;
  request.ignore_stop_tokens = true;
  std::vector<BeamSearchText> all;
  const std::vector<double> first = logprobs_after(*engine, request.prompt.tokens(), {});
  for (size_t a = 0; a < first.size(); ++a) {
    const std::vector<double> second = logprobs_after(*engine, request.prompt.tokens(), {int32_t(a)});
    for (size_t b = 0; b < second.size(); ++b) all.push_back({{int32_t(a), int32_t(b)}, first[a] + second[b]});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const BeamSearchText& a, const BeamSearchText& b) { return a.logprob > b.logprob; });
  const auto beams = beam_search(*engine, request);
  ASSERT_TRUE(beams.ok()) << beams.status().to_string();
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ((*beams)[i].tokens, all[i].tokens) << i;
}

TEST(BeamSearch, OneBeamIsGreedy) {
  const auto engine = open_beam_search(kTales);
  GenerateRequest greedy;
  greedy.prompt = engine->encode("Once upon a time").value();
  greedy.sampling.temperature = 0;
  greedy.max_tokens = 12;
  greedy.ignore_stop_tokens = true;
  BeamSearchRequest request;
  request.prompt = greedy.prompt;
  request.beam_width = 1;
  request.ignore_stop_tokens = true;
  request.max_tokens = 12;
  const auto beams = beam_search(*engine, request).value();
  const auto text = engine->generate(greedy).value();
  EXPECT_EQ(beams[0].tokens, text.tokens);
  EXPECT_EQ(beams[0].text, text.text);
  EXPECT_EQ(beams[0].reason, FinishReason::kLength);
}

TEST(BeamSearch, BeamsShareThePagesOfThePrompt) {
  const auto engine = open_beam_search(kTales);
  BeamSearchRequest request;
  for (int i = 0; i < 90; ++i) request.prompt.push_back(20 + i);
  request.beam_width = 8;
  request.max_tokens = 5;
  request.ignore_stop_tokens = true;
  int64_t max_pages = 0;
  ASSERT_TRUE(beam_search(*engine, request, [&](int64_t) {
                max_pages = std::max(max_pages, engine->stats().cache_pages_used);
                return true;
              }).ok());
  const int64_t page = engine->stats().page_tokens;
  EXPECT_GT(max_pages, 0);
  EXPECT_LE(max_pages, 90 / page + 8 * 2);  // each beam has its own last pages
  EXPECT_EQ(engine->stats().cache_pages_used, 0);
}

TEST(BeamSearch, EndsWhenItIsToldTo) {
  const auto engine = open_beam_search(kTales);
  BeamSearchRequest request;
  request.prompt = engine->encode("Once upon a time").value();
  const auto beams = beam_search(*engine, request, [](int64_t tokens) { return tokens < 3; }).value();
  EXPECT_EQ(beams[0].reason, FinishReason::kCancelled);
  EXPECT_EQ(beams[0].tokens.size(), 3U);
  request.max_tokens = 1000;  // more than the context of 128 holds
  request.ignore_stop_tokens = true;
  const auto full = beam_search(*engine, request).value();
  EXPECT_EQ(full[0].reason, FinishReason::kContext);
  EXPECT_EQ(full[0].tokens.size() + request.prompt.size(), 129U);  // the last token has not been read
}

TEST(BeamSearch, ManyBeamsTakeSeveralSteps) {
  const auto wide = open_beam_search(kBeamSearchGolden), narrow = open_beam_search(kBeamSearchGolden, 2);
  BeamSearchRequest request;
  request.prompt = {1, 2, 3};
  request.beam_width = 5;
  request.max_tokens = 4;
  const auto a = beam_search(*wide, request).value();
  const auto b = beam_search(*narrow, request);
  ASSERT_TRUE(b.ok()) << b.status().to_string();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].tokens, (*b)[i].tokens);
}

TEST(BeamSearch, WrongRequestsAreNamed) {
  const auto engine = open_beam_search(kBeamSearchGolden);
  const auto message = [&](BeamSearchRequest request) {
    const auto beams = beam_search(*engine, request);
    EXPECT_EQ(beams.status().code(), Code::invalid_argument);
    return std::string(beams.status().message());
  };
  EXPECT_THAT(message({}), HasSubstr("the prompt is empty"));
  EXPECT_THAT(message({.prompt = {1}, .beam_width = 0}), HasSubstr("beam_width is 0"));
  EXPECT_THAT(message({.prompt = {1}, .max_tokens = -1}), HasSubstr("max_tokens -1"));
  EXPECT_THAT(message({.prompt = {1}, .length_penalty = NAN}), HasSubstr("length_penalty is nan"));
  EXPECT_THAT(message({.prompt = std::vector<int32_t>(500, 1)}), HasSubstr("500"));
}

}  // namespace
}  // namespace redline
