// Top-k (Fan et al. 2018, arXiv:1805.04833): the k most likely tokens.
#include "llm/samplers/sampler_row.h"

namespace redline {
namespace {

class TopK final : public SamplerStep {
 public:
  explicit TopK(const SamplerContext& c) : k_(c.options.top_k) {}
  void apply(Candidates& candidates, int64_t /*position*/) override { candidates.keep_top_k(k_); }
  RowCut cut(LogitRow& row, float temperature, Candidates& out) override {
    return {.is_written = row.top_k(k_, temperature, out)};
  }
  DeviceOrder add_to(SampleRow& row) const override {
    row.top_k = k_;
    return DeviceOrder::kTopK;
  }

 private:
  int64_t k_;
};

constexpr SamplingParameter kTopKParameters[] = {
    {.name = "top_k",
     .member = &SamplingOptions::top_k,
     .symbol = "K",
     .help = "sample from the K most likely tokens; 0 or -1 is off",
     .allowed = "0 (off) or more",
     .range = {0, SamplingParameter::kMaxInteger},
     .input = {-1, SamplingParameter::kMaxInteger},
     .neutral = 0,
     .is_of_model = true,
     .is_common = true},
};

}  // namespace

extern const SamplerRow kTopKSampler = {
    .name = "top_k",
    .kind = SamplerKind::kTruncation,
    .after = "top_n_sigma",
    .parameters = kTopKParameters,
    .is_active = [](const SamplingOptions& o) { return o.top_k > 0; },
    .make = make_sampler_step<TopK>,
};

}  // namespace redline
