#include "embedding/pooling.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/text_distance.h"

namespace redline {
namespace {

struct PoolingName {
  Pooling pooling;
  std::string_view name, other;  ///< name in Redline; name in sentence-transformers
};
constexpr PoolingName kNames[] = {{Pooling::kMean, "mean", "mean_tokens"},
                                  {Pooling::kCls, "cls", "cls_token"},
                                  {Pooling::kLast, "last", "lasttoken"},
                                  {Pooling::kMax, "max", "max_tokens"},
                                  {Pooling::kMeanSqrt, "mean_sqrt", "mean_sqrt_len_tokens"},
                                  {Pooling::kWeightedMean, "weighted_mean", "weightedmean"}};

double norm_of(std::span<const float> v) {
  double squares = 0;
  for (const float x : v) squares += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(squares);
}

}  // namespace

std::string_view pooling_name(Pooling pooling) { return kNames[static_cast<size_t>(pooling)].name; }

Result<Pooling> pooling_from_name(std::string_view name) {
  std::string known;
  for (const PoolingName& row : kNames) {
    if (name == row.name || name == row.other) return row.pooling;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  return invalid_argument("pooling \"{}\"{}; known are {}", name, the_nearest(name, known), known);
}

void Pooler::add(const float* hidden, int64_t tokens) {
  const auto width = static_cast<int64_t>(sums_.size());
  const bool weighted = pooling_ == Pooling::kWeightedMean;
  for (int64_t t = 0; t < tokens; ++t, hidden += width) {
    const int64_t number = tokens_++;
    if (pooling_ == Pooling::kCls && number > 0) continue;
    if (number == 0 || pooling_ == Pooling::kLast) {
      std::copy_n(hidden, width, sums_.begin());
      continue;
    }
    const double weight = weighted ? static_cast<double>(number + 1) : 1;
    for (int64_t i = 0; i < width; ++i) {
      double& sum = sums_[static_cast<size_t>(i)];
      const auto x = static_cast<double>(hidden[i]);
      sum = pooling_ == Pooling::kMax ? std::max(sum, x) : sum + weight * x;
    }
  }
}

void Pooler::finish(std::span<float> out) const {
  const auto n = static_cast<double>(tokens_);
  double divisor = 1;
  if (pooling_ == Pooling::kMean) divisor = n;
  else if (pooling_ == Pooling::kMeanSqrt) divisor = std::sqrt(n);
  else if (pooling_ == Pooling::kWeightedMean) divisor = n * (n + 1) / 2;
  for (size_t i = 0; i < sums_.size(); ++i) out[i] = static_cast<float>(sums_[i] / divisor);
}

void pool(Pooling pooling, const float* hidden, int64_t tokens, std::span<float> out) {
  Pooler pooler(pooling, std::ssize(out));
  pooler.add(hidden, tokens);
  pooler.finish(out);
}

void normalize(std::span<float> vector) {
  const double norm = std::max(norm_of(vector), 1e-12);
  for (float& x : vector) x = static_cast<float>(static_cast<double>(x) / norm);
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double dot = 0;
  for (size_t i = 0; i < a.size(); ++i) dot += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  const double norms = norm_of(a) * norm_of(b);
  return norms > 0 ? dot / norms : 0;
}

}  // namespace redline
