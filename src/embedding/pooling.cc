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

void pool(Pooling pooling, const float* hidden, int64_t tokens, std::span<float> out) {
  const auto width = static_cast<int64_t>(out.size());
  if (pooling == Pooling::kCls || pooling == Pooling::kLast) {
    std::copy_n(hidden + (pooling == Pooling::kLast ? (tokens - 1) * width : 0), width, out.begin());
    return;
  }
  if (pooling == Pooling::kMax) {
    std::copy_n(hidden, width, out.begin());
    for (int64_t t = 1; t < tokens; ++t)
      for (int64_t i = 0; i < width; ++i)
        out[static_cast<size_t>(i)] = std::max(out[static_cast<size_t>(i)], hidden[t * width + i]);
    return;
  }
  const bool weighted = pooling == Pooling::kWeightedMean;
  const auto n = static_cast<double>(tokens);
  const double divisor = weighted ? n * (n + 1) / 2 : pooling == Pooling::kMeanSqrt ? std::sqrt(n) : n;
  std::vector<double> sums(out.size());
  for (int64_t t = 0; t < tokens; ++t) {
    const double weight = weighted ? static_cast<double>(t + 1) : 1;
    for (int64_t i = 0; i < width; ++i)
      sums[static_cast<size_t>(i)] += weight * static_cast<double>(hidden[t * width + i]);
  }
  for (size_t i = 0; i < sums.size(); ++i) out[i] = static_cast<float>(sums[i] / divisor);
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
