#include "llm/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace redline {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;  // golden ratio, sqrt(3) - 1
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = kMultiplier0 * counter[0];
    const uint64_t b = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double uniform_at(uint64_t seed, uint64_t position) {
  const auto bits = philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
                               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t word = (uint64_t{bits[1]} << 32) | bits[0];
  return static_cast<double>(word >> 11) * 0x1p-53;
}

namespace {

Status check_range(const char* name, double value, bool good, const char* range) {
  if (good) return {};
  return invalid_argument("{} is {}; allowed: {}", name, value, range);
}

}  // namespace

Result<Sampler> Sampler::create(const SamplingOptions& o, int64_t vocab_size) {
  // Written so that NaN fails each check.
  REDLINE_TRY(check_range("temperature", o.temperature, o.temperature >= 0 && std::isfinite(o.temperature),
                          "a finite number, 0 (greedy) or more"));
  REDLINE_TRY(check_range("top_k", static_cast<double>(o.top_k), o.top_k >= 0, "0 (off) or more"));
  REDLINE_TRY(check_range("top_p", o.top_p, o.top_p > 0 && o.top_p <= 1, "more than 0, up to 1 (off)"));
  REDLINE_TRY(check_range("min_p", o.min_p, o.min_p >= 0 && o.min_p <= 1, "0 (off) to 1"));
  REDLINE_TRY(check_range("repetition_penalty", o.repetition_penalty,
                          o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty),
                          "a finite number more than 0; 1 is off"));
  if (vocab_size < 1 || vocab_size > std::numeric_limits<int32_t>::max())
    return invalid_argument("sampler: the vocabulary has {} tokens", vocab_size);
  return Sampler(o, vocab_size);
}

Sampler::Sampler(const SamplingOptions& options, int64_t vocab_size) : options_(options) {
  const auto size = static_cast<size_t>(vocab_size);
  is_seen_.resize(size);
  weights_.resize(size);
  candidates_.reserve(size);
  if (options.repetition_penalty != 1.0f) {
    penalized_.resize(size);
    seen_.reserve(size);
  }
}

void Sampler::accept(std::span<const int32_t> tokens) {
  if (penalized_.empty()) return;
  for (const int32_t token : tokens) {
    if (token < 0 || static_cast<size_t>(token) >= is_seen_.size() || is_seen_[static_cast<size_t>(token)]) continue;
    is_seen_[static_cast<size_t>(token)] = 1;
    seen_.push_back(token);
  }
}

Result<Sampler::Scan> Sampler::scan(std::span<const float> logits, int64_t position) const {
  if (logits.size() != is_seen_.size())
    return invalid_argument("sampler: {} logits for a vocabulary of {}", logits.size(), is_seen_.size());
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Scan result{-kInf, -1};
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] < kInf))
      return internal("position {}: the logit of token {} is {}; the weights or the computation are broken", position,
                      i, std::isnan(logits[i]) ? "NaN" : "+inf");
    if (logits[i] > result.best) result = {logits[i], static_cast<int32_t>(i)};
  }
  if (result.best_id < 0) return internal("position {}: every logit is -inf, so there is no token to choose", position);
  return result;
}

Result<int32_t> Sampler::sample(std::span<const float> logits, int64_t position) {
  if (!penalized_.empty() && logits.size() == penalized_.size()) {
    std::copy(logits.begin(), logits.end(), penalized_.begin());
    for (const int32_t token : seen_) {
      float& logit = penalized_[static_cast<size_t>(token)];
      logit = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
    }
    logits = penalized_;
  }
  REDLINE_ASSIGN(const Scan best, scan(logits, position));
  if (options_.temperature == 0) return best.best_id;

  // Subtract before dividing, so that a tiny temperature cannot give inf - inf.
  for (size_t i = 0; i < logits.size(); ++i) weights_[i] = std::exp((logits[i] - best.best) / options_.temperature);
  const Candidate least = threshold(logits);
  const auto is_kept = [&](size_t i) {
    return weights_[i] >= options_.min_p && !likelier(least, Candidate{logits[i], static_cast<int32_t>(i)});
  };

  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i)
    if (is_kept(i)) total += weights_[i];
  const double target = uniform_at(options_.seed, static_cast<uint64_t>(position)) * total;
  // Iterates in id order, so the choice does not depend on how the threshold was found.
  double sum = 0;
  int32_t last = best.best_id;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (weights_[i] == 0 || !is_kept(i)) continue;
    sum += weights_[i];
    last = static_cast<int32_t>(i);
    if (sum > target) break;
  }
  return last;
}

Sampler::Candidate Sampler::threshold(std::span<const float> logits) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Candidate everything{-kInf, std::numeric_limits<int32_t>::max()};
  const bool use_top_k = options_.top_k > 0 && static_cast<size_t>(options_.top_k) < logits.size();
  const bool use_top_p = options_.top_p < 1;
  if (!use_top_k && !use_top_p) return everything;

  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] > -kInf) candidates_.push_back({logits[i], static_cast<int32_t>(i)});
  const auto begin = candidates_.begin();
  size_t kept = candidates_.size();
  if (use_top_k && static_cast<size_t>(options_.top_k) < kept) {
    kept = static_cast<size_t>(options_.top_k);
    std::nth_element(begin, begin + static_cast<int64_t>(kept) - 1, candidates_.end(), likelier);
  }
  Candidate least = use_top_k ? candidates_[kept - 1] : everything;
  if (!use_top_k || kept == candidates_.size()) least = everything;
  if (!use_top_p) return least;

  const auto mass = [&](size_t from, size_t to) {
    double sum = 0;
    for (size_t i = from; i < to; ++i) sum += weights_[static_cast<size_t>(candidates_[i].id)];
    return sum;
  };
  // The smallest set of most likely tokens with a mass of at least top_p: a quickselect by mass that narrows the range
  // of its last member.
  const double wanted = options_.top_p * mass(0, kept);
  double above = 0;
  size_t low = 0, high = kept;
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    std::nth_element(begin + static_cast<int64_t>(low), begin + static_cast<int64_t>(middle),
                     begin + static_cast<int64_t>(high), likelier);
    const double upper = mass(low, middle);
    if (above + upper >= wanted) {
      high = middle;
    } else {
      above += upper;
      low = middle;
    }
  }
  return candidates_[low];
}

Result<float> Sampler::logprobs(std::span<const float> logits, int32_t token, int64_t count,
                                std::vector<TokenLogprob>& top) {
  REDLINE_ASSIGN(const Scan best, scan(logits, -1));
  if (token < 0 || static_cast<size_t>(token) >= logits.size())
    return invalid_argument("sampler: token {} is outside the vocabulary of {}", token, logits.size());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - best.best);
  const double log_sum = std::log(sum) + best.best;

  top.clear();
  const size_t wanted = std::min(logits.size(), static_cast<size_t>(std::max<int64_t>(count, 0)));
  if (wanted > 0) {
    candidates_.clear();
    for (size_t i = 0; i < logits.size(); ++i) candidates_.push_back({logits[i], static_cast<int32_t>(i)});
    const auto end = candidates_.begin() + static_cast<int64_t>(wanted);
    std::nth_element(candidates_.begin(), end - 1, candidates_.end(), likelier);
    std::sort(candidates_.begin(), end, likelier);
    for (size_t i = 0; i < wanted; ++i)
      top.push_back({candidates_[i].id, static_cast<float>(candidates_[i].logit - log_sum)});
  }
  return static_cast<float>(logits[static_cast<size_t>(token)] - log_sum);
}

}  // namespace redline
