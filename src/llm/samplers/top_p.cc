// Top-p, or nucleus sampling (Holtzman et al. 2020, arXiv:1904.09751).
#include "llm/samplers/sampler_row.h"

namespace redline {
namespace {

class TopP final : public SamplerStep {
 public:
  explicit TopP(const SamplerContext& c) : p_(c.options.top_p) {}
  void apply(Candidates& candidates, int64_t /*position*/) override { candidates.keep_top_p(p_); }
  bool needs_sums() const override { return true; }
  RowCut cut(LogitRow& row, float temperature, Candidates& out) override {
    if (row.top_p(p_, temperature, out)) return {.is_written = true};
    if (row.has_blocks()) return {.last = row.last_of_top_p(p_, temperature)};
    return {};
  }
  DeviceOrder add_to(SampleRow& row) const override {
    row.top_p = p_;
    return DeviceOrder::kTopP;
  }

 private:
  float p_;
};

constexpr SamplingParameter kTopPParameters[] = {
    {.name = "top_p",
     .member = &SamplingOptions::top_p,
     .symbol = "P",
     .help = "sample from the most likely tokens with a cumulative probability of P; 1 is off",
     .allowed = "more than 0, up to 1 (off)",
     .range = {0, 1},
     .excludes_min = true,
     .input = {0, 1},
     .neutral = 1,
     .is_of_model = true,
     .is_common = true},
};

}  // namespace

extern const SamplerRow kTopPSampler = {
    .name = "top_p",
    .kind = SamplerKind::kTruncation,
    .after = "typical_p",
    .parameters = kTopPParameters,
    .is_active = [](const SamplingOptions& o) { return o.top_p < 1; },
    .make = make_sampler_step<TopP>,
};

}  // namespace redline
