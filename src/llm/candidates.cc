#include "llm/candidates.h"

#include <cmath>
#include <numeric>

#include "kernels/cpu/logit_blocks.h"

namespace redline {

void Candidates::reserve(size_t vocab_size) {
  tokens_.reserve(vocab_size);
  weights_.reserve(vocab_size);
  order_.reserve(vocab_size);
  scores_.reserve(vocab_size);
  search_.reserve(vocab_size);
}

void Candidates::clear() {
  tokens_.clear();
  temperature_ = 1;
  has_weights_ = false;
}

float* Candidates::logit_of(int32_t id) {
  const auto found = std::lower_bound(tokens_.begin(), tokens_.end(), id,
                                      [](const Candidate& token, int32_t other) { return token.id < other; });
  if (found == tokens_.end() || found->id != id) return nullptr;
  has_weights_ = false;
  return &found->logit;
}

void Candidates::set_temperature(float temperature) {
  temperature_ = temperature;
  has_weights_ = false;
}

std::span<const float> Candidates::weights() {
  if (has_weights_) return weights_;
  has_weights_ = true;
  best_ = tokens_[0].logit;
  for (const Candidate& token : tokens_) best_ = std::max(best_, token.logit);
  weights_.resize(tokens_.size());
  for (size_t i = 0; i < tokens_.size(); ++i) weights_[i] = tokens_[i].logit;
  kernels_->block_exp_sum({.x = weights_.data(),
                           .count = std::ssize(weights_),
                           .best = best_,
                           .scale = scale_of(temperature_),
                           .weights = weights_.data()});
  return weights_;
}

int64_t Candidates::units() {
  int64_t sum = 0;
  for (const float weight : weights()) sum += weight_units(weight);
  return sum;
}

/// Keeps the tokens i with keep(i), which is called in the order of ids, before any token after i is moved.
template <class Keep>
void Candidates::filter(Keep keep) {
  weights();
  size_t kept = 0;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (!keep(i)) continue;
    tokens_[kept] = tokens_[i];
    weights_[kept++] = weights_[i];
  }
  tokens_.resize(kept);
  weights_.resize(kept);
}

void Candidates::number_tokens() {
  order_.resize(tokens_.size());
  std::iota(order_.begin(), order_.end(), 0U);
}

/// Returns the last of the smallest number of first tokens, in the order `before`, whose weights reach the wanted sum.
/// This is a quickselect by weight, which narrows the range of that token.
template <class Before, class Reached>
uint32_t Candidates::last_of_units(Before before, Reached reached) {
  number_tokens();
  const auto begin = order_.begin();
  int64_t above = 0;
  size_t low = 0, high = order_.size();
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    std::nth_element(begin + static_cast<int64_t>(low), begin + static_cast<int64_t>(middle),
                     begin + static_cast<int64_t>(high), before);
    int64_t upper = 0;
    for (size_t i = low; i < middle; ++i) upper += weight_units(weights_[order_[i]]);
    if (reached(above + upper)) {
      high = middle;
    } else {
      above += upper;
      low = middle;
    }
  }
  return order_[low];
}

void Candidates::keep_down_to(Candidate least) {
  filter([&](size_t i) { return !likelier(least, tokens_[i]); });
}

void Candidates::keep_top_k(int64_t k) {
  if (static_cast<size_t>(k) >= tokens_.size()) return;
  number_tokens();
  const auto last = order_.begin() + k - 1;
  std::nth_element(order_.begin(), last, order_.end(), [&](uint32_t a, uint32_t b) { return is_likelier(a, b); });
  keep_down_to(tokens_[*last]);
}

void Candidates::keep_top_p(double p) {
  const int64_t wanted = share_of_units(p, units());
  keep_down_to(search_.last(tokens_, weights_, wanted));
}

bool Candidates::keep_top_units(int64_t wanted) {
  if (units() < wanted) return false;
  keep_down_to(search_.last(tokens_, weights_, wanted));
  return true;
}

void Candidates::keep_min_p(float p) {
  weights();
  const float wanted = p * *std::max_element(weights_.begin(), weights_.end());
  filter([&](size_t i) { return weights_[i] >= wanted; });
}

void Candidates::keep_typical(double p) {
  const int64_t units_of_all = units();
  const double sum = static_cast<double>(units_of_all) * kWeightUnit, typical = entropy();
  scores_.resize(tokens_.size());
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const double surprise = std::log(sum) - (double{tokens_[i].logit} - double{best_}) / double{temperature_};
    scores_[i] = std::abs(surprise - typical);
  }
  const auto before = [&](uint32_t a, uint32_t b) {
    return scores_[a] < scores_[b] || (scores_[a] == scores_[b] && is_likelier(a, b));
  };
  const uint32_t last = last_of_units(
      before, [&](int64_t part) { return static_cast<double>(part) > p * static_cast<double>(units_of_all); });
  const double score = scores_[last];
  const Candidate least = tokens_[last];
  filter([&](size_t i) { return scores_[i] < score || (scores_[i] == score && !likelier(least, tokens_[i])); });
}

void Candidates::keep_top_n_sigma(double n) {
  double sum = 0, squares = 0, best = tokens_[0].logit;
  for (const Candidate& token : tokens_) {
    sum += token.logit;
    best = std::max(best, double{token.logit});
  }
  const double count = static_cast<double>(tokens_.size()), mean = sum / count;
  for (const Candidate& token : tokens_) squares += (token.logit - mean) * (token.logit - mean);
  const double least = best - n * std::sqrt(squares / count);
  filter([&](size_t i) { return tokens_[i].logit >= least; });
}

void Candidates::drop_top_choices(double threshold) {
  const double wanted = threshold * static_cast<double>(units()) * kWeightUnit;
  size_t least = tokens_.size();
  for (size_t i = 0; i < tokens_.size(); ++i)
    if (weights_[i] >= wanted && (least == tokens_.size() || likelier(tokens_[least], tokens_[i]))) least = i;
  if (least == tokens_.size()) return;
  const Candidate last = tokens_[least];
  filter([&](size_t i) { return !likelier(tokens_[i], last); });
}

void Candidates::keep_zipf(double mu, int64_t vocab_size) {
  weights();
  number_tokens();
  constexpr size_t kFitted = 100;
  const size_t count = std::min(kFitted, order_.size());
  std::partial_sort(order_.begin(), order_.begin() + static_cast<int64_t>(count), order_.end(),
                    [&](uint32_t a, uint32_t b) { return is_likelier(a, b); });
  // The exponent s of p(rank) ~ rank^-s is fitted by least squares over adjacent ranks: log(p_i / p_(i+1)) = s log((i +
  // 1) / i).
  double products = 0, squares = 0;
  for (size_t i = 0; i + 1 < count; ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    const double b = (double{tokens_[order_[i]].logit} - double{tokens_[order_[i + 1]].logit}) / double{temperature_};
    products += t * b;
    squares += t * t;
  }
  if (count < 2) return;
  const double s = products / squares, epsilon = s - 1;
  const double k = std::pow(epsilon * std::exp2(mu) / (1 - std::pow(static_cast<double>(vocab_size), -epsilon)), 1 / s);
  // k is not a number for equal likelihoods, or for an exponent of exactly 1.
  const auto size = static_cast<double>(tokens_.size());
  keep_top_k(k >= size ? std::ssize(tokens_) : k >= 1 ? static_cast<int64_t>(k) : 1);
}

void Candidates::keep_surprise(double mu) {
  const double wanted = std::exp2(-mu) * static_cast<double>(units()) * kWeightUnit;
  const float best = *std::max_element(weights_.begin(), weights_.end());
  if (best < wanted) return keep_top_k(1);
  filter([&](size_t i) { return weights_[i] >= wanted; });
}

double Candidates::entropy() {
  const double sum = static_cast<double>(units()) * kWeightUnit;
  double total = 0;
  for (size_t i = 0; i < tokens_.size(); ++i)
    if (weights_[i] > 0) total += weights_[i] * ((double{tokens_[i].logit} - double{best_}) / double{temperature_});
  return std::log(sum) - total / sum;
}

Candidates::Drawn Candidates::draw(double u) {
  const int64_t total = units(), target = units_at(u, total);
  int64_t sum = 0, drawn = 0;
  size_t last = 0;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const int64_t own = weight_units(weights_[i]);
    if (own == 0) continue;
    sum += own;
    last = i;
    drawn = own;
    if (sum > target) break;
  }
  return {tokens_[last].id, static_cast<double>(drawn) / static_cast<double>(total)};
}

}  // namespace redline
