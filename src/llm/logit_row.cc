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
/// Minimum number of blocks: with a smaller vocabulary blocks save no time.
constexpr size_t kMinBlocks = 32;
/// Relative error of a sum of weights in near_ against the exact sum: the error of the kernel's sum plus twice the
/// error of one weight, once in the factor of its block and once in the exact sum. Weights below e^-30 do not count:
/// e^-30 is less than a unit.
constexpr double kNearError = kNearSumError + 2 * (4 * 30 + 4) * 0x1p-24;
static_assert(kNearError < 2e-5);
/// Ranges of maxima of blocks, by their distance from the largest logit.
constexpr size_t kRanges = 256;

}  // namespace

LogitRow::LogitRow(const CpuKernels& kernels, int64_t vocab_size)
    : kernels_(kernels), vocab_size_(static_cast<size_t>(vocab_size)) {
  const auto blocks = static_cast<size_t>(num_logit_blocks(vocab_size));
  maxima_.resize(blocks);
  sums_.resize(blocks);
  ordered_.reserve(blocks);
  if (has_blocks()) near_.resize(blocks), factors_.resize(blocks);
}

std::span<const float> LogitRow::block(size_t b) const {
  const size_t begin = b * kLogitBlock;
  return logits_.subspan(begin, std::min<size_t>(kLogitBlock, vocab_size_ - begin));
}

Status LogitRow::scan(std::span<const float> logits, int64_t position, float top_p_temperature) {
  if (logits.size() != vocab_size_)
    return invalid_argument("sampler: {} logits for a vocabulary of {}", logits.size(), vocab_size_);
  logits_ = logits;
  BlockMaxArgs args = {.x = logits.data(), .count = std::ssize(logits), .max = maxima_.data()};
  near_temperature_ = has_blocks() ? top_p_temperature : 0;
  has_near_ = near_temperature_ > 0 && !was_flat_;
  has_sample_ = false;
  chunks_.clear();
  if (has_near_) {
    args.scale = scale_of(near_temperature_);
    args.near_sums = near_.data();
  }
  const bool has_no_nan = kernels_.block_max(args);
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
  if (has_near_) scale_near_sums();
  return {};
}

void LogitRow::sum_near_blocks() {
  if (has_near_) return;
  has_near_ = true;
  kernels_.block_max({.x = logits_.data(),
                      .count = std::ssize(logits_),
                      .max = maxima_.data(),
                      .scale = scale_of(near_temperature_),
                      .near_sums = near_.data()});
  scale_near_sums();
}

double LogitRow::weigh_maxima() {
  BlockExpSumArgs args = weights_of(maxima_, near_temperature_);
  args.weights = factors_.data();
  kernels_.block_exp_sum(args);
  std::array<double, 4> sums{};  // four independent sums, which do not wait for each other
  for (size_t b = 0; b < factors_.size(); ++b) sums[b % sums.size()] += double{factors_[b]};
  return sums[0] + sums[1] + sums[2] + sums[3];
}

void LogitRow::scale_near_sums() {
  weigh_maxima();
  std::array<double, 4> sums{};
  for (size_t b = 0; b < near_.size(); ++b) {
    near_[b] *= factors_[b];
    sums[b % sums.size()] += double{near_[b]};
  }
  near_total_ = sums[0] + sums[1] + sums[2] + sums[3];
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
    std::array<float, 2 * kLogitBlock> listed;
    std::array<int32_t, 2 * kLogitBlock> places;
    int64_t count = 0;
    kernels_.block_exp_sum({.x = tokens.data(),
                            .count = std::ssize(tokens),
                            .best = best_,
                            .scale = 1,
                            .low = least,
                            .high = kInf,
                            .between = listed.data(),
                            .places = places.data(),
                            .num_between = &count});
    for (size_t i = 0; i < static_cast<size_t>(count); ++i)
      out.add({listed[i], static_cast<int32_t>(b * kLogitBlock) + places[i]});
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
  // If k approaches the number of blocks, the bound falls to the smallest maximum, so that no block would be skipped.
  if (!has_blocks() || wanted > maxima_.size() - maxima_.size() / 8) return false;
  gather(bound(wanted), out);
  out.set_temperature(temperature);
  out.keep_top_k(k);
  return true;
}

LogitRow::Wanted LogitRow::wanted_units(float p, float least, float temperature) const {
  int64_t exact = 0;
  double rest = near_total_;
  for (size_t b = 0; least < kInf && b < maxima_.size(); ++b) {
    if (maxima_[b] < least) continue;
    int64_t units = 0;
    BlockExpSumArgs args = weights_of(block(b), temperature);
    args.sums = &units;
    kernels_.block_exp_sum(args);
    exact += units;
    rest -= double{near_[b]};
  }
  // The difference of sums has their rounding errors in float64, so it may be negative.
  rest = std::max(rest, 0.0) / kWeightUnit;
  const double error = rest * kNearError + static_cast<double>(vocab_size_) + 1;
  const auto total = [&](double sum) { return exact + static_cast<int64_t>(std::max(sum, 0.0)); };
  return {share_of_units(p, total(rest - error)), share_of_units(p, total(rest + error))};
}

std::span<const float> LogitRow::bounds_of_top_p(double wanted, float temperature) {
  constexpr float kReach = 32;  // exp(-32) is less than a unit
  std::array<double, kRanges> sums{};
  std::array<uint32_t, kRanges> counts{};
  const float least = std::max(*std::min_element(maxima_.begin(), maxima_.end()), kLowest);
  const float reach = std::min(kReach * temperature, best_ - least);
  const float per_unit = std::clamp(static_cast<float>(kRanges) / reach, 1e-30F, 1e30F);
  for (size_t b = 0; b < maxima_.size(); ++b) {
    const auto range = static_cast<size_t>(std::min((best_ - maxima_[b]) * per_unit, static_cast<float>(kRanges - 1)));
    sums[range] += double{near_[b]};
    ++counts[range];
  }
  // The first bound covers the blocks that hold the wanted sum and some more; each further bound covers twice as many.
  // A distribution that needs more than a quarter of the blocks is left to last_of_top_p().
  ordered_.clear();
  const size_t most = maxima_.size() / 4;
  size_t blocks = 0, next = 0;
  double sum = 0;
  for (size_t range = 0; range + 1 < kRanges; ++range) {
    sum += sums[range];
    blocks += counts[range];
    if (blocks > most || (next == 0 && blocks >= kMinBlocks / 2 && sum < wanted / 8)) break;
    if (next == 0 && sum >= wanted) next = blocks + blocks / 4 + 4;
    const bool is_last = range + 2 == kRanges;
    if (next == 0 || (blocks < next && !is_last)) continue;
    ordered_.push_back(std::max(best_ - static_cast<float>(range + 1) / per_unit, kLowest));
    next = 2 * blocks;
  }
  return ordered_;
}

bool LogitRow::top_p(float p, float temperature, Candidates& out) {
  if (!has_blocks()) return false;
  REDLINE_CHECK(near_temperature_ == temperature);
  if (!has_near_) {
    if (is_flat(temperature)) return false;
    sum_near_blocks();
  }
  for (const float least : bounds_of_top_p(double{p} * near_total_, temperature)) {
    enum { kOutOfReach, kUncertain, kKept };
    const auto keep = [&](const Wanted& units) {
      gather(least, out);
      out.set_temperature(temperature);
      if (!out.keep_top_units(units.at_least)) return kOutOfReach;
      // If the kept tokens also reach the largest sum, the last token is the same for every sum between the bounds.
      return out.units() >= units.at_most ? kKept : kUncertain;
    };
    auto kept = keep(wanted_units(p, kInf, temperature));
    if (kept == kUncertain) kept = keep(wanted_units(p, least, temperature));
    if (kept == kUncertain) {
      const int64_t units = share_of_units(p, sum_blocks(temperature));
      kept = keep({units, units});
    }
    if (kept == kKept) {
      was_flat_ = false;
      return true;
    }
  }
  return false;
}

void LogitRow::take_sample(float temperature) {
  constexpr size_t kStride = 8 * kLogitBlock, kRun = 16;
  if (has_sample_) return;
  has_sample_ = true;
  sample_.clear();
  for (size_t i = 0; i < vocab_size_; i += kStride) {
    const std::span<const float> run = logits_.subspan(i, std::min(kRun, vocab_size_ - i));
    sample_.insert(sample_.end(), run.begin(), run.end());
  }
  picked_.resize(sample_.size());
  BlockExpSumArgs args = weights_of(sample_, temperature);
  args.weights = picked_.data();
  kernels_.block_exp_sum(args);
  sample_sum_ = 0;
  for (const float weight : picked_) sample_sum_ += double{weight};
}

bool LogitRow::is_flat(float temperature) {
  take_sample(temperature);
  constexpr double kMaxShare = 0.25;  // maximum share of all weights in the most likely tokens of the blocks
  return weigh_maxima() * static_cast<double>(sample_.size()) <
         kMaxShare * sample_sum_ * static_cast<double>(vocab_size_);
}

LogitRow::Bracket LogitRow::guess(double p, float temperature) {
  constexpr size_t kSampleRanges = 512, kFirst = 256;
  constexpr float kNothing = 30;     // exp(-30) is less than a unit
  constexpr double kDeviations = 4;  // one in 16,000 lies outside
  take_sample(temperature);
  // The range is estimated from the first samples; less likely tokens fall into the last range.
  float least = best_;
  for (size_t i = 0; i < std::min(kFirst, sample_.size()); ++i) least = std::min(least, std::max(sample_[i], kLowest));
  const float reach = std::min(kNothing * temperature, best_ - least);
  const float per_unit = std::clamp(static_cast<float>(kSampleRanges) / reach, 1e-30F, 1e30F);
  struct Range {
    double sum = 0, squares = 0;
  };
  std::array<Range, kSampleRanges> ranges;
  double all_squares = 0;
  for (size_t i = 0; i < sample_.size(); ++i) {
    const float place = std::min((best_ - sample_[i]) * per_unit, static_cast<float>(kSampleRanges - 1));
    const double weight{picked_[i]};
    Range& range = ranges[static_cast<size_t>(place)];
    range.sum += weight;
    range.squares += weight * weight;
    all_squares += weight * weight;
  }
  // The weights below a logit are summed from the least likely tokens on, because their weights differ little, together
  // with the standard deviation of the sum. If the sum of all weights is estimated from the sample, its error is added.
  const double share = static_cast<double>(sample_.size()) / static_cast<double>(vocab_size_);
  const double wanted = (1 - p) * (has_near_ ? near_total_ * share : sample_sum_);
  const double own = has_near_ ? 0 : (1 - p) * (1 - p) * all_squares;
  const auto logit_at = [&](size_t range) { return best_ - static_cast<float>(range) / per_unit; };
  Bracket bracket{kLowest, kInf};
  double sum = 0, squares = own;
  for (size_t range = kSampleRanges; range-- > 0;) {
    sum += ranges[range].sum;
    squares += ranges[range].squares;
    const double rest = wanted - sum;
    if (rest * rest <= kDeviations * kDeviations * squares) continue;
    if (rest > 0) {
      bracket.low = logit_at(range);
    } else {
      bracket.high = logit_at(range);
      break;
    }
  }
  return bracket;
}

int64_t LogitRow::sum_chunks(std::span<const float> tokens, float temperature) {
  chunks_.resize(static_cast<size_t>(num_logit_blocks(std::ssize(tokens))));
  BlockExpSumArgs args = weights_of(tokens, temperature);
  args.sums = chunks_.data();
  kernels_.block_exp_sum(args);
  return std::accumulate(chunks_.begin(), chunks_.end(), int64_t{0});
}

Candidate LogitRow::last_of_top_p(float p, float temperature) {
  was_flat_ = true;
  Bracket bracket = guess(double{p}, temperature);
  if (bracket.high <= bracket.low) bracket = {kLowest, kInf};
  between_.resize(vocab_size_ + kLogitBlock);
  begins_.resize(maxima_.size() + 1);
  for (;;) {
    int64_t listed = 0, total = 0;
    BlockExpSumArgs args = weights_of(logits_, temperature);
    args.sums = sums_.data();
    args.low = bracket.low;
    args.high = bracket.high;
    args.between = between_.data();
    args.num_between = &listed;
    args.total = &total;
    args.begins = begins_.data();
    kernels_.block_exp_sum(args);
    const int64_t wanted = share_of_units(p, total);
    const int64_t above = std::accumulate(sums_.begin(), sums_.end(), int64_t{0});
    if (above >= wanted) {
      bracket = {bracket.high, kInf};
      continue;
    }
    const auto count = static_cast<size_t>(listed);
    const int64_t units = sum_chunks({between_.data(), count}, temperature);
    if (above + units < wanted) {
      bracket = {kLowest, bracket.low};
      continue;
    }
    last_between_ = last_between(count, bracket, wanted - above, units, temperature);
    sum_kept(count, temperature);
    return {last_between_.logit, id_at(static_cast<size_t>(last_between_.id), bracket)};
  }
}

int32_t LogitRow::id_at(size_t place, Bracket bracket) const {
  const auto next = std::upper_bound(begins_.begin(), begins_.end(), static_cast<int32_t>(place));
  const auto b = static_cast<size_t>(next - begins_.begin()) - 1;
  const std::span<const float> tokens = block(b);
  size_t i = 0;
  for (auto before = static_cast<size_t>(begins_[b]);; ++i) {
    if (tokens[i] < bracket.low || tokens[i] >= bracket.high) continue;
    if (before++ == place) break;
  }
  return static_cast<int32_t>(b * kLogitBlock + i);
}

LogitRow::Bracket LogitRow::interpolate(Bracket all, size_t tokens, double share, float temperature) {
  constexpr double kDeviations = 4, kBend = 0.3;
  // Assumes that logits are evenly spread. The actual places deviate like those of a sample, and by the curvature of
  // the distribution.
  const double size = static_cast<double>(tokens), width = double{all.high} - double{all.low};
  const double room =
      kDeviations * std::sqrt(size * share * (1 - share)) + kBend * width / double{temperature} * size + 2;
  const auto at = [&](double place) { return static_cast<float>(double{all.high} - place / size * width); };
  Bracket bracket = all;
  if (share * size > room) bracket.high = at(share * size - room);
  if (share * size + room < size) bracket.low = at(share * size + room);
  return bracket;
}

LogitRow::Bracket LogitRow::guess_among(std::span<const float> tokens, double share) {
  constexpr size_t kSample = 512;
  constexpr double kDeviations = 4;
  // The place of the last kept token is about its share of the units. Ids are not ordered by logit, so every n-th token
  // is a random sample.
  picked_.clear();
  has_sample_ = false;
  const size_t stride = std::max<size_t>(1, tokens.size() / kSample);
  for (size_t i = 0; i < tokens.size(); i += stride) picked_.push_back(tokens[i]);
  const double size = static_cast<double>(picked_.size());
  const double spread = kDeviations * std::sqrt(size * share * (1 - share)) + 2;
  const auto at = [&](double place) {  // in descending order
    const auto nth = picked_.begin() + static_cast<int64_t>(place);
    std::nth_element(picked_.begin(), nth, picked_.end(), std::greater<>());
    return *nth;
  };
  Bracket bracket{kLowest, kInf};
  if (share * size - spread >= 0) bracket.high = at(share * size - spread);
  if (share * size + spread < size) bracket.low = at(share * size + spread);
  return bracket;
}

Candidate LogitRow::last_between(size_t count, Bracket bracket, int64_t wanted, int64_t units, float temperature) {
  constexpr size_t kFew = 384;
  std::span<const float> tokens(between_.data(), count);
  std::span<const int32_t> ids;  // empty: an index is its own id
  bool interpolates = bracket.low > kLowest && bracket.high < kInf;
  for (size_t round = 0; tokens.size() > kFew;) {
    const double share = static_cast<double>(wanted) / static_cast<double>(units);
    const Bracket part =
        interpolates ? interpolate(bracket, tokens.size(), share, temperature) : guess_among(tokens, share);
    Narrowed& narrowed = narrowed_[round % 2];
    narrowed.logits.resize(tokens.size() + kLogitBlock);
    narrowed.places.resize(tokens.size() + kLogitBlock);
    chunks_.resize(static_cast<size_t>(num_logit_blocks(std::ssize(tokens))));
    int64_t listed = 0;
    BlockExpSumArgs args = weights_of(tokens, temperature);
    args.sums = chunks_.data();
    args.low = part.low;
    args.high = part.high;
    args.between = narrowed.logits.data();
    args.places = narrowed.places.data();
    args.num_between = &listed;
    kernels_.block_exp_sum(args);
    const auto left = static_cast<size_t>(listed);
    const int64_t above = std::accumulate(chunks_.begin(), chunks_.end(), int64_t{0});
    const int64_t own = sum_chunks({narrowed.logits.data(), left}, temperature);
    if (above >= wanted || above + own < wanted || left > (interpolates ? tokens.size() / 2 : tokens.size() - 1)) {
      // A sample may also mislead, and it cannot separate equal logits. Then all remaining tokens are examined.
      if (!interpolates) break;
      interpolates = false;
      continue;
    }
    narrowed.ids.resize(left);
    for (size_t i = 0; i < left; ++i) {
      const int32_t place = narrowed.places[i];
      narrowed.ids[i] = ids.empty() ? place : ids[static_cast<size_t>(place)];
    }
    tokens = {narrowed.logits.data(), left};
    ids = narrowed.ids;
    bracket = part;
    ++round;
    wanted -= above;
    units = own;
  }
  weights_.resize(std::max(weights_.size(), tokens.size()));
  BlockExpSumArgs args = weights_of(tokens, temperature);
  args.weights = weights_.data();
  kernels_.block_exp_sum(args);
  tokens_.clear();
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens_.push_back({tokens[i], ids.empty() ? static_cast<int32_t>(i) : ids[i]});
  return search_.last(tokens_, {weights_.data(), tokens.size()}, wanted);
}

void LogitRow::sum_kept(size_t count, float temperature) {
  Narrowed& equal = narrowed_[0];
  equal.logits.resize(count + kLogitBlock);
  equal.places.resize(count + kLogitBlock);
  chunks_.resize(static_cast<size_t>(num_logit_blocks(static_cast<int64_t>(count))));
  int64_t listed = 0;
  BlockExpSumArgs args = weights_of({between_.data(), count}, temperature);
  args.sums = chunks_.data();
  args.low = last_between_.logit;
  args.high = std::nextafter(last_between_.logit, kInf);
  // Processors that flush denormals to zero would treat a smaller bound as 0.
  if (std::abs(args.high) < std::numeric_limits<float>::min()) args.high = std::numeric_limits<float>::min();
  args.between = equal.logits.data();
  args.places = equal.places.data();
  args.num_between = &listed;
  kernels_.block_exp_sum(args);
  const auto size = static_cast<size_t>(listed);
  weights_.resize(std::max(weights_.size(), size));
  args = weights_of({equal.logits.data(), size}, temperature);
  args.weights = weights_.data();
  kernels_.block_exp_sum(args);
  for (size_t i = 0; i < size; ++i) {
    const int32_t place = equal.places[i];
    if (!likelier(last_between_, {equal.logits[i], place}))
      chunks_[static_cast<size_t>(place) / kLogitBlock] += weight_units(weights_[i]);
  }
}

bool LogitRow::min_p(float p, float temperature, Candidates& out) {
  constexpr float kMin = 1e-30F;  // smaller weights are less accurate
  if (!has_blocks() || p < kMin) return false;
  // The bound is lowered by the rounding error of weights, because keep_min_p() decides by weights.
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
  std::array<float, kLogitBlock> weights;
  const auto weigh = [&](std::span<const float> tokens) {
    BlockExpSumArgs args = weights_of(tokens, temperature);
    args.weights = weights.data();
    kernels_.block_exp_sum(args);
  };
  /// Returns the index of a block's first token in between_.
  const auto begin_of = [&](size_t b) { return chunks_.empty() ? 0 : static_cast<size_t>(begins_[b]); };
  /// Returns the units of the kept tokens among [i, end) of between_, which are in one block.
  const auto kept_units = [&](size_t i, size_t end) {
    weigh({between_.data() + i, end - i});
    int64_t units = 0;
    for (size_t k = i; k < end; ++k)
      if (!likelier(last_between_, {between_[k], static_cast<int32_t>(k)})) units += weight_units(weights[k - i]);
    return units;
  };
  const int64_t above = std::accumulate(sums_.begin(), sums_.end(), int64_t{0});
  int64_t target = units_at(u, std::accumulate(chunks_.begin(), chunks_.end(), above));
  // Chunks of between_, each with the blocks that end before its next one begins.
  size_t b = 0, i = 0;
  for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    const size_t end = (chunk + 1) * kLogitBlock;
    const auto past = std::upper_bound(begins_.begin() + static_cast<int64_t>(b), begins_.end(), end,
                                       [](size_t place, int32_t begin) { return place < static_cast<size_t>(begin); });
    const size_t next = std::min(static_cast<size_t>(past - begins_.begin()) - 1, sums_.size());
    const int64_t units = std::accumulate(sums_.begin() + static_cast<int64_t>(b),
                                          sums_.begin() + static_cast<int64_t>(next), chunks_[chunk]);
    if (units > target) break;
    target -= units;
    b = next;
    i = end;
  }
  // The remaining tokens are examined block by block. The first block may have tokens in the previous chunk.
  const size_t chunk_begin = i;
  i = begin_of(b);
  if (i < chunk_begin) target += kept_units(i, chunk_begin);
  for (; b + 1 < sums_.size(); ++b) {
    const size_t end = begin_of(b + 1);
    const int64_t units = sums_[b] + (end > i ? kept_units(i, end) : 0);
    if (units > target) break;
    target -= units;
    i = end;
  }
  const std::span<const float> tokens = block(b);
  weigh(tokens);
  int32_t drawn = best_id_;
  for (size_t k = 0; k < tokens.size(); ++k) {
    const Candidate token{tokens[k], static_cast<int32_t>(b * kLogitBlock + k)};
    const int64_t units = weight_units(weights[k]);
    if (units == 0 || likelier(last, token)) continue;
    drawn = token.id;
    target -= units;
    if (target < 0) break;
  }
  return drawn;
}

int32_t LogitRow::draw(float temperature, double u) {
  sum_blocks(temperature);
  chunks_.clear();
  return draw_down_to({kLowest, std::numeric_limits<int32_t>::max()}, temperature, u);
}

}  // namespace redline
