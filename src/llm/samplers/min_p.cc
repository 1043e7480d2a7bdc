// Min-p (Nguyen et al. 2024, arXiv:2407.01082): tokens at least this likely, relative to the most likely one.
#include "llm/samplers/sampler_row.h"

namespace redline {
namespace {

class MinP final : public SamplerStep {
 public:
  explicit MinP(const SamplerContext& c) : p_(c.options.min_p) {}
  void apply(Candidates& candidates, int64_t /*position*/) override { candidates.keep_min_p(p_); }
  RowCut cut(LogitRow& row, float temperature, Candidates& out) override {
    return {.is_written = row.min_p(p_, temperature, out)};
  }
  DeviceOrder add_to(SampleRow& row) const override {
    row.min_p = p_;
    return DeviceOrder::kMinP;
  }

 private:
  float p_;
};

constexpr SamplingParameter kMinPParameters[] = {
    {.name = "min_p",
     .member = &SamplingOptions::min_p,
     .symbol = "P",
     .help = "drop tokens less likely than P times the most likely one; 0 is off",
     .allowed = "0 (off) to 1",
     .range = {0, 1},
     .input = {0, 1},
     .neutral = 0,
     .is_of_model = true,
     .is_common = true},
};

}  // namespace

extern const SamplerRow kMinPSampler = {
    .name = "min_p",
    .kind = SamplerKind::kTruncation,
    .after = "top_p",
    .parameters = kMinPParameters,
    .is_active = [](const SamplingOptions& o) { return o.min_p > 0; },
    .make = make_sampler_step<MinP>,
};

}  // namespace redline
