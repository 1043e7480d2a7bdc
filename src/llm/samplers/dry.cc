// DRY ("don't repeat yourself"), as in llama.cpp: a token that would continue a repetition is penalized by its length.
#include "llm/samplers/sampler_row.h"

namespace redline {
namespace {

class Dry final : public PenaltyStep {
 public:
  explicit Dry(const SamplerContext& c) : history_(c.history) {}

 private:
  void penalize(const TokenHistory::LogitOf& logit_of) override { history_.apply_dry(logit_of); }
  TokenHistory& history_;
};

constexpr SamplingParameter kDryParameters[] = {
    {.name = "dry_multiplier",
     .member = &SamplingOptions::dry_multiplier,
     .symbol = "X",
     .help = "penalize tokens that continue a repetition of N tokens by X * base^(N - allowed length); 0 is off",
     .allowed = "a finite number, 0 (off) or more",
     .range = {0, SamplingParameter::kMaxFloat},
     .input = {0, 1000},
     .neutral = 0},
    {.name = "dry_base",
     .member = &SamplingOptions::dry_base,
     .symbol = "X",
     .help = "with DRY: the base",
     .allowed = "a finite number, 1 or more",
     .range = {1, SamplingParameter::kMaxFloat},
     .input = {1, 1000},
     .depends_on = "dry_multiplier"},
    {.name = "dry_allowed_length",
     .member = &SamplingOptions::dry_allowed_length,
     .symbol = "N",
     .help = "with DRY: the shortest repetition with a penalty",
     .allowed = "0 or more",
     .range = {0, SamplingParameter::kMaxInteger},
     .input = {0, SamplingParameter::kMaxInteger},
     .depends_on = "dry_multiplier"},
    {.name = "dry_penalty_last_n",
     .member = &SamplingOptions::dry_penalty_last_n,
     .symbol = "N",
     .help = "with DRY: tokens in which repetitions are searched for; 0: none, -1: all",
     .allowed = "-1 (all), 0 (none) or more",
     .range = {-1, SamplingParameter::kMaxInteger},
     .input = {-1, SamplingParameter::kMaxInteger},
     .depends_on = "dry_multiplier",
     .neutral = -1},
};

}  // namespace

extern const SamplerRow kDrySampler = {
    .name = "dry",
    .kind = SamplerKind::kPenalty,
    .after = "penalties",
    .parameters = kDryParameters,
    .is_active = TokenHistory::has_dry,
    .make = make_sampler_step<Dry>,
};

}  // namespace redline
