// XTC ("exclude top choices"), as in llama.cpp: with some probability, all but the least likely of the tokens above a
// threshold are removed.
#include "llm/philox.h"
#include "llm/samplers/sampler_row.h"

namespace redline {
namespace {

class Xtc final : public SamplerStep {
 public:
  explicit Xtc(const SamplerContext& c)
      : seed_(c.options.seed), probability_(c.options.xtc_probability), threshold_(c.options.xtc_threshold) {}
  void apply(Candidates& candidates, int64_t position) override {
    constexpr uint32_t kStream = 1;
    if (uniform_at(seed_, static_cast<uint64_t>(position), kStream) < double{probability_})
      candidates.drop_top_choices(threshold_);
  }

 private:
  uint64_t seed_;
  float probability_, threshold_;
};

constexpr SamplingParameter kXtcParameters[] = {
    {.name = "xtc_probability",
     .member = &SamplingOptions::xtc_probability,
     .symbol = "P",
     .help = "how often XTC drops all but the least likely of the tokens above its threshold; 0 is off",
     .allowed = "0 (off) to 1",
     .range = {0, 1},
     .input = {0, 1},
     .neutral = 0},
    {.name = "xtc_threshold",
     .member = &SamplingOptions::xtc_threshold,
     .symbol = "P",
     .help = "with XTC: the threshold, a probability; above 0.5 is off",
     .allowed = "0 to 1",
     .range = {0, 1},
     .input = {0, 1},
     .depends_on = "xtc_probability"},
};

}  // namespace

extern const SamplerRow kXtcSampler = {
    .name = "xtc",
    .kind = SamplerKind::kTruncation,
    .after = "min_p",
    .parameters = kXtcParameters,
    .is_active = [](const SamplingOptions& o) { return o.xtc_probability > 0 && o.xtc_threshold <= 0.5F; },
    .make = make_sampler_step<Xtc>,
};

}  // namespace redline
