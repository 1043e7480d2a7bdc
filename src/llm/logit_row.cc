#include "llm/logit_row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace redline {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();
/// Smaller vocabularies gain nothing.
constexpr size_t kMinBlocks = 32;

}  // namespace

LogitRow::LogitRow(const CpuKernels& kernels, int64_t vocab_size)
    : kernels_(kernels), vocab_size_(static_cast<size_t>(vocab_size)) {
  const auto blocks = static_cast<size_t>(num_logit_blocks(vocab_size));
  maxima_.resize(blocks);
  sums_.resize(blocks);
  ordered_.reserve(blocks);
  largest_.reserve(blocks);
}

std::span<const float> LogitRow::block(size_t b) const {
  const size_t begin = b * kLogitBlock;
  return logits_.subspan(begin, std::min<size_t>(kLogitBlock, vocab_size_ - begin));
}

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

BlockExpSumArgs LogitRow::weights_of(std::span<const float> logits, float temperature) const {
  return {.x = logits.data(), .count = std::ssize(logits), .best = best_, .scale = scale_of(temperature)};
}

int64_t LogitRow::sum_blocks(float temperature) {
  BlockExpSumArgs args = weights_of(logits_, temperature);
  args.sums = sums_.data();
  kernels_.block_exp_sum(args);
  return std::accumulate(sums_.begin(), sums_.end(), int64_t{0});
}

bool LogitRow::has_blocks() const { return maxima_.size() >= kMinBlocks; }

bool LogitRow::top_k(int64_t k, float temperature, Candidates& out) {
  const auto wanted = static_cast<size_t>(k);
  // Towards one token in each block, the bound comes down to the least maximum.
  if (!has_blocks() || wanted > maxima_.size() - maxima_.size() / 8) return false;
  gather(bound(wanted), out);
  out.set_temperature(temperature);
  out.keep_top_k(k);
  return true;
}

void LogitRow::sum_nearly(float temperature) {
  near_.resize(maxima_.size());
  BlockExpSumArgs args = weights_of(logits_, temperature);
  args.near_sums = near_.data();
  kernels_.block_exp_sum(args);
}

LogitRow::Wanted LogitRow::wanted_units(float p, float least, float temperature) const {
  int64_t exact = 0;
  double rest = 0, tokens = 0;
  for (size_t b = 0; b < maxima_.size(); ++b) {
    const std::span<const float> logits = block(b);
    if (maxima_[b] < least) {
      rest += double{near_[b]} / kWeightUnit;
      tokens += static_cast<double>(logits.size());
      continue;
    }
    int64_t units = 0;
    BlockExpSumArgs args = weights_of(logits, temperature);
    args.sums = &units;
    kernels_.block_exp_sum(args);
    exact += units;
  }
  const double error = rest * kNearSumError + tokens + 1;
  const auto total = [&](double sum) { return exact + static_cast<int64_t>(std::max(sum, 0.0)); };
  return {share_of_units(p, total(rest - error)), share_of_units(p, total(rest + error))};
}

bool LogitRow::top_p(float p, float temperature, Candidates& out) {
  if (!has_blocks()) return false;
  sum_nearly(temperature);
  const double wanted = double{p} * std::accumulate(near_.begin(), near_.end(), 0.0);
  // The blocks with the largest maxima, as many as hold the wanted sum and some more; each further round takes twice as
  // many. A distribution that takes most blocks is left to last_of_top_p.
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
    if (n == kMinBlocks / 2 && sum < wanted / 8) return false;
    sort_up_to(n + 1);
    sum += double{near_[largest_[n]]};
  }
  for (n += n / 4 + 4; n <= most; n *= 2) {
    sort_up_to(n);
    const float least = std::max(maxima_[largest_[n - 1]], kLowest);
    const auto gather_all = [&] {
      gather(least, out);
      out.set_temperature(temperature);
    };
    gather_all();
    const Wanted units = wanted_units(p, least, temperature);
    if (!out.keep_top_units(units.at_least)) continue;
    // The last token is that of every sum in between, unless it does not reach the largest.
    if (out.units() >= units.at_most) return true;
    gather_all();
    if (out.keep_top_units(share_of_units(p, sum_blocks(temperature)))) return true;
  }
  return false;
}

LogitRow::Bracket LogitRow::guess(int64_t rest, float temperature) {
  constexpr size_t kStride = 4 * kLogitBlock, kRun = 16, kRanges = 1024;
  constexpr float kNothing = 30;     // exp(-30) is less than a unit
  constexpr double kDeviations = 4;  // one in 16,000 lies outside
  sample_.clear();
  for (size_t i = 0; i < vocab_size_; i += kStride) {
    const std::span<const float> run = logits_.subspan(i, std::min(kRun, vocab_size_ - i));
    sample_.insert(sample_.end(), run.begin(), run.end());
  }
  weights_.resize(std::max(weights_.size(), sample_.size()));
  BlockExpSumArgs args = weights_of(sample_, temperature);
  args.weights = weights_.data();
  kernels_.block_exp_sum(args);
  float least = best_;
  for (const float logit : sample_) least = std::min(least, std::max(logit, kLowest));
  const float reach = std::min(kNothing * temperature, best_ - least);
  const float per_unit = std::clamp(static_cast<float>(kRanges) / reach, 1e-30F, 1e30F);
  struct Range {
    double sum = 0, squares = 0;
  };
  std::array<Range, kRanges> ranges;
  for (size_t i = 0; i < sample_.size(); ++i) {
    const float place = std::min((best_ - sample_[i]) * per_unit, static_cast<float>(kRanges - 1));
    Range& range = ranges[static_cast<size_t>(place)];
    range.sum += double{weights_[i]};
    range.squares += double{weights_[i]} * double{weights_[i]};
  }
  // From the least likely ones, whose weights differ little: the sum of those below a logit, and its standard
  // deviation.
  const double wanted =
      static_cast<double>(rest) * kWeightUnit * static_cast<double>(sample_.size()) / static_cast<double>(vocab_size_);
  const auto logit_at = [&](size_t range) { return best_ - static_cast<float>(range) / per_unit; };
  Bracket bracket{kLowest, kInf};
  double sum = 0, squares = 0;
  for (size_t range = kRanges; range-- > 0;) {
    sum += ranges[range].sum;
    squares += ranges[range].squares;
    const double error = kDeviations * std::sqrt(squares);
    if (sum + error < wanted) bracket.low = logit_at(range);
    if (sum - error > wanted) {
      bracket.high = logit_at(range);
      break;
    }
  }
  return bracket;
}

Candidate LogitRow::last_of_top_p(float p, float temperature) {
  const double near = std::accumulate(near_.begin(), near_.end(), 0.0) / kWeightUnit;
  Bracket bracket = guess(static_cast<int64_t>((1 - double{p}) * near), temperature);
  if (bracket.high <= bracket.low) bracket = {kLowest, kInf};
  between_.resize(vocab_size_ + kLogitBlock);
  places_.resize(vocab_size_ + kLogitBlock);
  int64_t wanted = 0;  // known after the first pass
  for (;;) {
    int64_t listed = 0, total = 0;
    BlockExpSumArgs args = weights_of(logits_, temperature);
    args.sums = sums_.data();
    args.low = bracket.low;
    args.high = bracket.high;
    args.between = between_.data();
    args.places = places_.data();
    args.num_between = &listed;
    if (wanted == 0) args.total = &total;
    kernels_.block_exp_sum(args);
    if (wanted == 0) wanted = share_of_units(p, total);
    const int64_t above = std::accumulate(sums_.begin(), sums_.end(), int64_t{0});
    if (above >= wanted) {
      bracket = {bracket.high, kInf};
      continue;
    }
    const std::span<const float> between(between_.data(), static_cast<size_t>(listed));
    weights_.resize(std::max(weights_.size(), between.size()));
    args = weights_of(between, temperature);
    args.weights = weights_.data();
    kernels_.block_exp_sum(args);
    tokens_.clear();
    tokens_.reserve(between.size());
    int64_t units = 0;
    for (size_t i = 0; i < between.size(); ++i) {
      tokens_.push_back({between[i], places_[i]});
      units += weight_units(weights_[i]);
    }
    if (above + units < wanted) {
      bracket = {kLowest, bracket.low};
      continue;
    }
    const Candidate last = search_.last(tokens_, {weights_.data(), tokens_.size()}, wanted - above);
    for (size_t i = 0; i < tokens_.size(); ++i)
      if (!likelier(last, tokens_[i]))
        sums_[static_cast<size_t>(places_[i]) / kLogitBlock] += weight_units(weights_[i]);
    return last;
  }
}

bool LogitRow::min_p(float p, float temperature, Candidates& out) {
  constexpr float kMin = 1e-30F;  // smaller weights are less accurate
  if (!has_blocks() || p < kMin) return false;
  // With room for the rounding of weights, which decide.
  const double distance = double{temperature} * (std::log(double{p}) * (1 + 1e-5) - 1e-6);
  const double least = std::max(best_ + distance, double{kLowest});
  gather(std::max(std::nextafter(static_cast<float>(least), -kInf), kLowest), out);
  out.set_temperature(temperature);
  out.keep_min_p(p);
  return true;
}

void LogitRow::keep_down_to(Candidate last, float temperature, Candidates& out) const {
  out.clear();
  for (size_t i = 0; i < vocab_size_; ++i) {
    const Candidate token{logits_[i], static_cast<int32_t>(i)};
    if (!likelier(last, token)) out.add(token);
  }
  out.set_temperature(temperature);
}

int32_t LogitRow::draw_down_to(Candidate last, float temperature, double u) {
  int64_t target = units_at(u, std::accumulate(sums_.begin(), sums_.end(), int64_t{0}));
  size_t b = 0;
  for (; b + 1 < sums_.size() && sums_[b] <= target; ++b) target -= sums_[b];
  const std::span<const float> tokens = block(b);
  std::array<float, kLogitBlock> weights;
  BlockExpSumArgs args = weights_of(tokens, temperature);
  args.weights = weights.data();
  kernels_.block_exp_sum(args);
  int32_t drawn = best_id_;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Candidate token{tokens[i], static_cast<int32_t>(b * kLogitBlock + i)};
    const int64_t units = weight_units(weights[i]);
    if (units == 0 || likelier(last, token)) continue;
    drawn = token.id;
    target -= units;
    if (target < 0) break;
  }
  return drawn;
}

int32_t LogitRow::draw(float temperature, double u) {
  sum_blocks(temperature);
  return draw_down_to({kLowest, std::numeric_limits<int32_t>::max()}, temperature, u);
}

}  // namespace redline
