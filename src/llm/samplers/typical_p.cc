// Locally typical sampling (Meister et al. 2022, arXiv:2202.00666).
#include "llm/samplers/sampler_row.h"

namespace redline {
namespace {

class TypicalP final : public SamplerStep {
 public:
  explicit TypicalP(const SamplerContext& c) : p_(c.options.typical_p) {}
  void apply(Candidates& candidates, int64_t /*position*/) override { candidates.keep_typical(p_); }

 private:
  float p_;
};

constexpr std::string_view kTypicalPFlags[] = {"typical"};
constexpr std::string_view kTypicalPAliases[] = {"typ_p", "typical"};
constexpr SamplingParameter kTypicalPParameters[] = {
    {.name = "typical_p",
     .member = &SamplingOptions::typical_p,
     .symbol = "P",
     .help = "locally typical tokens with a cumulative probability of P; 1 is off",
     .allowed = "more than 0, up to 1 (off)",
     .range = {0, 1},
     .excludes_min = true,
     .input = {1e-6, 1},
     .aliases = kTypicalPFlags,
     .neutral = 1},
};

}  // namespace

extern const SamplerRow kTypicalPSampler = {
    .name = "typical_p",
    .aliases = kTypicalPAliases,
    .kind = SamplerKind::kTruncation,
    .after = "top_k",
    .parameters = kTypicalPParameters,
    .is_active = [](const SamplingOptions& o) { return o.typical_p < 1; },
    .make = make_sampler_step<TypicalP>,
};

}  // namespace redline
