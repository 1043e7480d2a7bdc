#include "llm/logit_row.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "kernels/cpu/logit_blocks.h"

namespace redline {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();
/// Smaller vocabularies gain nothing.
constexpr size_t kMinBlocks = 32;
/// Between a weight of block_exp_sum and one of Candidates::weights, (logit - best) / temperature being d: the bound of
/// the kernel, (4 |d| + 24) 2^-24, the roundings of 1 / temperature and of the division, and that of std::exp, so
/// (6 |d| + 25) 2^-24 in all. Up to |d| = 24 that is below 1.1e-5; smaller weights, below 4e-11, differ by less than 4e-5
/// of that.
constexpr double kRelativeError = 1.1e-5, kSmallError = 1.6e-15;
/// Of a sum of float64 numbers over the vocabulary.
constexpr double kSumRounding = 1e-10;

}  // namespace

LogitRow::LogitRow(const CpuKernels& kernels, int64_t vocab_size)
    : kernels_(kernels), vocab_size_(static_cast<size_t>(vocab_size)) {
  const auto blocks = static_cast<size_t>(num_logit_blocks(vocab_size));
  maxima_.resize(blocks);
  sums_.resize(blocks);
  ordered_.reserve(blocks);
  exact_sums_.reserve(blocks);
  largest_.reserve(blocks);
}

std::span<const float> LogitRow::block(size_t b) const {
  const size_t begin = b * kLogitBlock;
  return logits_.subspan(begin, std::min<size_t>(kLogitBlock, vocab_size_ - begin));
}

float LogitRow::weight(float logit, float temperature) const { return std::exp((logit - best_) / temperature); }

Status LogitRow::scan(std::span<const float> logits, int64_t position) {
  if (logits.size() != vocab_size_)
    return invalid_argument("sampler: {} logits for a vocabulary of {}", logits.size(), vocab_size_);
  logits_ = logits;
  const bool has_no_nan = kernels_.block_max({.x = logits.data(), .count = std::ssize(logits), .max = maxima_.data()});
  const auto best = std::max_element(maxima_.begin(), maxima_.end());
  best_ = *best;
  if (!has_no_nan || best_ == kInf) {
    const auto broken = std::find_if(logits.begin(), logits.end(), [](float logit) { return !(logit < kInf); });
    return internal("position {}: the logit of token {} is {}; the weights or the computation are broken", position,
                    broken - logits.begin(), std::isnan(*broken) ? "NaN" : "+inf");
  }
  if (best_ == -kInf) return internal("position {}: every logit is -inf, so there is no token to choose", position);
  const std::span<const float> tokens = block(static_cast<size_t>(best - maxima_.begin()));
  best_id_ = static_cast<int32_t>(std::find(tokens.begin(), tokens.end(), best_) - tokens.begin() +
                                  (best - maxima_.begin()) * kLogitBlock);
  return {};
}

void LogitRow::all(Candidates& out) const {
  out.clear();
  for (size_t i = 0; i < vocab_size_; ++i)
    if (logits_[i] > -kInf) out.add({logits_[i], static_cast<int32_t>(i)});
}

float LogitRow::bound(size_t n) {
  ordered_.assign(maxima_.begin(), maxima_.end());
  const auto nth = ordered_.begin() + static_cast<int64_t>(n) - 1;
  std::nth_element(ordered_.begin(), nth, ordered_.end(), std::greater<>());
  return std::max(*nth, kLowest);
}

void LogitRow::gather(float least, Candidates& out) const {
  out.clear();
  for (size_t b = 0; b < maxima_.size(); ++b) {
    if (maxima_[b] < least) continue;
    const std::span<const float> tokens = block(b);
    for (size_t i = 0; i < tokens.size(); ++i)
      if (tokens[i] >= least) out.add({tokens[i], static_cast<int32_t>(b * kLogitBlock + i)});
  }
}

bool LogitRow::can_sum(float temperature) const {
  constexpr float kMin = 1e-3F, kMax = 1e6F;  // no overflow, and no d of many tokens near 0
  return maxima_.size() >= kMinBlocks && temperature >= kMin && temperature <= kMax;
}

void LogitRow::sum_blocks(std::span<const float> logits, float temperature, float limit, float* sums) const {
  kernels_.block_exp_sum({.x = logits.data(),
                          .count = std::ssize(logits),
                          .best = best_,
                          .scale = 1 / temperature,
                          .limit = limit,
                          .sums = sums});
}

double LogitRow::sum_below(float least, float temperature) const {
  double total = 0;
  for (size_t b = 0; b < maxima_.size(); ++b) {
    float sum = sums_[b];
    if (maxima_[b] >= least) sum_blocks(block(b), temperature, least, &sum);
    total += sum;
  }
  return total;
}

bool LogitRow::top_k(int64_t k, float temperature, Candidates& out) {
  const auto wanted = static_cast<size_t>(k);
  // Towards one token in each block, the bound comes down to the least maximum.
  if (maxima_.size() < kMinBlocks || wanted > maxima_.size() - maxima_.size() / 8) return false;
  gather(bound(wanted), out);
  out.set_temperature(temperature);
  out.keep_top_k(k);
  return true;
}

bool LogitRow::top_p(float p, float temperature, Candidates& out) {
  if (!can_sum(temperature)) return false;
  sum_blocks(logits_, temperature, kInf, sums_.data());
  double wanted = 0;
  for (const float sum : sums_) wanted += double{p} * sum;
  // The blocks with the largest maxima, as many as hold the wanted sum and some more; each further round takes twice as
  // many. A distribution that takes most blocks is left to the caller.
  largest_.resize(maxima_.size());
  std::iota(largest_.begin(), largest_.end(), 0U);
  const auto has_larger = [&](uint32_t a, uint32_t b) { return maxima_[a] > maxima_[b]; };
  size_t sorted = 0;
  const auto sort_up_to = [&](size_t n) {
    if (n <= sorted) return;
    const size_t end = std::min(maxima_.size() - 1, std::max<size_t>(kMinBlocks, 2 * n));
    const auto from = largest_.begin() + static_cast<int64_t>(sorted),
               to = largest_.begin() + static_cast<int64_t>(end);
    std::nth_element(from, to, largest_.end(), has_larger);
    std::sort(from, to, has_larger);
    sorted = end;
  };
  const size_t most = maxima_.size() / 4;
  size_t n = 0;
  for (double sum = 0; n < most && sum < wanted; ++n) {
    sort_up_to(n + 1);
    sum += sums_[largest_[n]];
  }
  for (n += n / 4 + 4; n <= most; n *= 2) {
    sort_up_to(n);
    const float least = std::max(maxima_[largest_[n - 1]], kLowest);
    gather(least, out);
    out.set_temperature(temperature);
    const double rest = sum_below(least, temperature);
    const double error = rest * kRelativeError + static_cast<double>(vocab_size_) * kSmallError;
    if (out.keep_top_p_of_more(p, std::max(0.0, rest - error), rest + error)) return true;
  }
  return false;
}

bool LogitRow::min_p(float p, float temperature, Candidates& out) {
  if (maxima_.size() < kMinBlocks) return false;
  // With room for the rounding of weights, which decide.
  const double distance = double{temperature} * (std::log(double{p}) * (1 + 1e-5) - 2e-7);
  const double least = std::max(best_ + distance, double{kLowest});
  gather(std::max(std::nextafter(static_cast<float>(least), -kInf), kLowest), out);
  out.set_temperature(temperature);
  out.keep_min_p(p);
  return true;
}

std::optional<int32_t> LogitRow::draw(float temperature, double u) {
  if (!can_sum(temperature)) return std::nullopt;
  sum_blocks(logits_, temperature, kInf, sums_.data());
  double total = 0;
  for (const float sum : sums_) total += sum;
  // Blocks with most of the weight are summed exactly. A negative number: this one is not.
  double exact = 0, rest = 0;
  exact_sums_.assign(sums_.size(), -1);
  for (size_t b = 0; b < sums_.size(); ++b) {
    if (sums_[b] < total / 64) {
      rest += sums_[b];
      continue;
    }
    double sum = 0;
    for (const float logit : block(b)) sum += weight(logit, temperature);
    exact += exact_sums_[b] = sum;
  }
  const double block_error = kLogitBlock * kSmallError, rounding = total * kSumRounding;
  const double error = rest * kRelativeError + static_cast<double>(sums_.size()) * block_error + rounding;
  const double least_target = u * (exact + rest - error) - rounding;
  const double most_target = u * (exact + rest + error) + rounding;
  double low = 0, high = 0;  // bounds of the sum of all weights so far
  for (size_t b = 0; b < sums_.size(); ++b) {
    const bool is_exact = exact_sums_[b] >= 0;
    const double sum = is_exact ? exact_sums_[b] : sums_[b];
    const double sum_error = is_exact ? 0 : sum * kRelativeError + block_error;
    if (high + sum + sum_error <= least_target) {
      low += sum - sum_error;
      high += sum + sum_error;
      continue;
    }
    const std::span<const float> tokens = block(b);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const float w = weight(tokens[i], temperature);
      low += w;
      high += w;
      if (low > most_target) return static_cast<int32_t>(b * kLogitBlock + i);
      if (high > least_target) return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace redline
