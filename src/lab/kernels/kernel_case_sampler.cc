// Sampling one token from each row of logits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "lab/kernels/kernel_case.h"
#include "lab/kernels/random_matrix.h"
#include "llm/sampler.h"

namespace redline::lab {
namespace {

struct SamplerType {
  std::string_view name;
  SamplingOptions options;
  /// Standard deviation of the logits, and number of outliers in them. They are like a trained model's, or without
  /// outliers.
  float spread = 2;
  int64_t peaks = 200;
};

SamplingOptions sampling(float temperature, int64_t top_k, float top_p, float min_p = 0) {
  SamplingOptions o;
  o.temperature = temperature;
  o.top_k = top_k;
  o.top_p = top_p;
  o.min_p = min_p;
  return o;
}

const std::vector<SamplerType>& sampler_types() {
  static const std::vector<SamplerType> types = {
      {"greedy", sampling(0, 0, 1)},          {"temperature", sampling(0.8f, 0, 1)},
      {"top_k", sampling(0.8f, 40, 0.95f)},   {"top_p", sampling(0.8f, 0, 0.95f)},
      {"min_p", sampling(0.8f, 0, 1, 0.05f)}, {"flat_top_p", sampling(1, 0, 0.95f), 1, 0},
  };
  return types;
}

class SamplerCase final : public SlotInputCase {
 public:
  SamplerCase(const SamplerType& type, std::vector<Sampler> samplers, int64_t rows, int64_t vocab_size)
      : SlotInputCase(rows * vocab_size * 4), type_(type), samplers_(std::move(samplers)), rows_(rows),
        vocab_size_(vocab_size) {}
  Cost cost() const override {
    const auto bytes = static_cast<double>(rows_ * vocab_size_ * 4);
    return {bytes, bytes, 0, ""};
  }
  int64_t output_bytes() const override { return rows_ * 4; }
  void fill(uint64_t seed) override {
    uint64_t state = seed;
    for (int64_t v = 0; v < kInputVariants; ++v)
      for (int64_t row = 0; row < rows_; ++row) {
        float* const logits = logits_of(v, row);
        for (int64_t i = 0; i < vocab_size_; ++i) logits[i] = random_normal(state, type_.spread);
        // Some tokens get high logits, as tokens that fit the text. A few of these get much higher ones.
        for (int64_t i = 0; i < type_.peaks; ++i) {
          const auto token = static_cast<int64_t>(next_random(state) % static_cast<uint64_t>(vocab_size_));
          logits[token] = 14 - 3 * std::abs(random_normal(state, 1)) - static_cast<float>(i) / 25;
        }
      }
  }
  void run(const KernelRun& run) const override {
    auto* const tokens = reinterpret_cast<int32_t*>(output(run.output));
    for (int64_t row = rows_ * run.worker / run.workers; row < rows_ * (run.worker + 1) / run.workers; ++row) {
      const auto token =
          samplers_[static_cast<size_t>(row)].sample({logits_of(run.slot, row), static_cast<size_t>(vocab_size_)}, row);
      tokens[row] = token.ok() ? *token : -1;
    }
  }
  KernelCheck check(int64_t slot, int64_t output_index, uint64_t) const override {
    KernelCheck result;
    const auto* const tokens = reinterpret_cast<const int32_t*>(output(output_index));
    constexpr int64_t kRows = 4;
    for (int64_t row = 0; row < std::min(rows_, kRows); ++row) {
      const std::vector<double> p = probabilities(logits_of(slot, row));
      // The distance of the random number from the token's part of [0, 1]; sums of float32 weights move its ends.
      const int32_t token = tokens[row];
      if (token < 0 || token >= vocab_size_ || p[static_cast<size_t>(token)] == 0) {
        result.add(INFINITY, 1);
        continue;
      }
      const double begin = std::accumulate(p.begin(), p.begin() + token, 0.0),
                   end = begin + p[static_cast<size_t>(token)];
      const double u = type_.options.temperature == 0 ? begin : uniform_at(0, static_cast<uint64_t>(row));
      result.add(std::max({0.0, begin - u, u - end}), 1e-6);
    }
    return result;
  }

 private:
  float* logits_of(int64_t slot, int64_t row) const { return inputs(slot) + row * vocab_size_; }
  /// Computes the probabilities by sorting, in float64.
  std::vector<double> probabilities(const float* logits) const {
    const SamplingOptions& o = type_.options;
    std::vector<int32_t> order(static_cast<size_t>(vocab_size_));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    if (o.temperature == 0) order.resize(1);
    if (o.top_k > 0) order.resize(static_cast<size_t>(std::min(o.top_k, vocab_size_)));
    std::vector<double> weights;
    double total = 0, sum = 0;
    for (const int32_t id : order)
      total += weights.emplace_back(
          o.temperature == 0 ? 1 : std::exp((double{logits[id]} - double{logits[order[0]]}) / double{o.temperature}));
    std::vector<double> p(static_cast<size_t>(vocab_size_));
    for (size_t i = 0; i < order.size() && sum < double{o.top_p} * total && weights[i] >= double{o.min_p}; ++i) {
      p[static_cast<size_t>(order[i])] = weights[i];
      sum += weights[i];
    }
    for (double& x : p) x /= sum;
    return p;
  }

  const SamplerType& type_;
  mutable std::vector<Sampler> samplers_;  ///< one sampler for each row, as each sequence of a batch has its own
  int64_t rows_, vocab_size_;
};

}  // namespace

Result<std::unique_ptr<KernelCase>> make_sampler_case(const KernelWorkload& workload, const CpuKernels& table) {
  if (workload.kernel != "sampler") return std::unique_ptr<KernelCase>();
  std::vector<std::string_view> names;
  for (const SamplerType& type : sampler_types()) {
    names.push_back(type.name);
    if (type.name != workload.type) continue;
    std::vector<Sampler> samplers;
    for (int64_t row = 0; row < workload.rows; ++row) {
      REDLINE_ASSIGN(Sampler sampler, Sampler::create(type.options, workload.shape[0], nullptr, &table));
      samplers.push_back(std::move(sampler));
    }
    return std::unique_ptr<KernelCase>(
        std::make_unique<SamplerCase>(type, std::move(samplers), workload.rows, workload.shape[0]));
  }
  return invalid_argument("kernel sampler has no type \"{}\"; there are: \"{}\"", workload.type,
                          fmt::join(names, "\", \""));
}

std::vector<std::string> sampler_type_names() {
  std::vector<std::string> names;
  for (const SamplerType& type : sampler_types()) names.emplace_back(type.name);
  return names;
}

}  // namespace redline::lab
