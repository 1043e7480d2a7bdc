#include "server/prompt_scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "base/error.h"
#include "server/http.h"

namespace redline::server {
namespace {

TokenScore score(std::span<const float> logits, int32_t token, size_t num_top) {
  const float max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - max));
  const double log_sum = max + std::log(sum);
  const auto logprob = [&](size_t id) { return static_cast<float>(logits[id] - log_sum); };
  const float chosen = logits[static_cast<size_t>(token)];
  const int64_t better = std::count_if(logits.begin(), logits.end(), [&](float logit) { return logit > chosen; });
  TokenScore s{logprob(static_cast<size_t>(token)), better + 1, {}};
  if (num_top == 0) return s;
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  num_top = std::min(num_top, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(num_top), ids.end(),
                    [&](int32_t a, int32_t b) {
                      const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  for (size_t i = 0; i < num_top; ++i) s.top.push_back({ids[i], logprob(static_cast<size_t>(ids[i]))});
  return s;
}

}  // namespace

Result<std::vector<TokenScore>> score_prompt(TextEngine& engine, const Prompt& prompt, const AdapterWeights& adapters,
                                             size_t num_top) {
  const auto vocab = static_cast<size_t>(engine.info().vocab_size);
  REDLINE_ASSIGN(const std::unique_ptr<Sequence> sequence, engine.new_sequence(adapters));
  std::vector<TokenScore> scores;
  if (prompt.size() < 2) return scores;
  REDLINE_TRY(sequence->append_in_steps(prompt, std::ssize(prompt), [&](int64_t, std::span<const float> logits) {
    for (; !logits.empty() && scores.size() + 1 < prompt.size(); logits = logits.subspan(vocab))
      scores.push_back(is_token_key(prompt.keys()[scores.size() + 1])
                           ? score(logits.first(vocab), prompt.tokens()[scores.size() + 1], num_top)
                           : TokenScore());
    return !HandledRequest::is_abandoned();
  }));
  return scores;
}

}  // namespace redline::server
