// Top-n-sigma (Tang et al. 2024, arXiv:2411.07641): logits within n standard deviations of the largest.
#include "llm/samplers/sampler_row.h"

namespace redline {
namespace {

class TopNSigma final : public SamplerStep {
 public:
  explicit TopNSigma(const SamplerContext& c) : n_(c.options.top_n_sigma) {}
  void apply(Candidates& candidates, int64_t /*position*/) override { candidates.keep_top_n_sigma(n_); }

 private:
  float n_;
};

constexpr std::string_view kTopNSigmaAliases[] = {"top_nsigma"};
constexpr SamplingParameter kTopNSigmaParameters[] = {
    {.name = "top_n_sigma",
     .member = &SamplingOptions::top_n_sigma,
     .symbol = "N",
     .help = "logits within N standard deviations of the largest; 0 or -1 is off",
     .allowed = "a finite number, 0 (off) or more",
     .range = {0, SamplingParameter::kMaxFloat},
     .input = {-1, 1000},
     .aliases = kTopNSigmaAliases,
     .neutral = 0},
};

}  // namespace

extern const SamplerRow kTopNSigmaSampler = {
    .name = "top_n_sigma",
    .aliases = kTopNSigmaAliases,
    .kind = SamplerKind::kTruncation,
    .parameters = kTopNSigmaParameters,
    .is_active = [](const SamplingOptions& o) { return o.top_n_sigma > 0; },
    .make = make_sampler_step<TopNSigma>,
};

}  // namespace redline
