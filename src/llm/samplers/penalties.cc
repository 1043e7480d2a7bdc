// Repetition penalty (Keskar et al. 2019, arXiv:1909.05858), and the presence and frequency penalties of OpenAI's API.
#include <algorithm>

#include "llm/samplers/sampler_row.h"

namespace redline {
namespace {

class Penalties final : public PenaltyStep {
 public:
  explicit Penalties(const SamplerContext& c) : history_(c.history) {}
  /// Merges the penalties into the edits of `row`, which are sorted by token and hold the bias.
  DeviceOrder add_to(SampleRow& row) const override {
    const auto biased = static_cast<int64_t>(row.edits.size());
    history_.for_each_penalty([&](const LogitEdit& penalty) {
      const auto end = row.edits.begin() + biased;
      const auto at = std::lower_bound(row.edits.begin(), end, penalty.token,
                                       [](const LogitEdit& edit, int32_t token) { return edit.token < token; });
      if (at == end || at->token != penalty.token) {
        row.edits.push_back(penalty);
      } else {
        at->repetition = penalty.repetition;
        at->penalty = penalty.penalty;
      }
    });
    return DeviceOrder::kPenalties;
  }

 private:
  void penalize(const TokenHistory::LogitOf& logit_of) override { history_.penalize(logit_of); }
  TokenHistory& history_;
};

constexpr std::string_view kRepetitionAliases[] = {"repeat_penalty"};
constexpr std::string_view kPenaltyWindowAliases[] = {"repeat_last_n"};
constexpr SamplingParameter kPenaltiesParameters[] = {
    {.name = "repetition_penalty",
     .member = &SamplingOptions::repetition_penalty,
     .symbol = "R",
     .help = "penalize tokens that are already in the text; 1 is off",
     .allowed = "a finite number more than 0; 1 is off",
     .range = {0, SamplingParameter::kMaxFloat},
     .excludes_min = true,
     .input = {0.01, 100},
     .aliases = kRepetitionAliases,
     .neutral = 1,
     .is_of_model = true,
     .is_common = true},
    {.name = "presence_penalty",
     .member = &SamplingOptions::presence_penalty,
     .symbol = "X",
     .help = "subtract X from the logits of tokens in the output",
     .allowed = "a finite number; 0 is off",
     .range = {-SamplingParameter::kMaxFloat, SamplingParameter::kMaxFloat},
     .input = {-100, 100},
     .neutral = 0,
     .is_common = true},
    {.name = "frequency_penalty",
     .member = &SamplingOptions::frequency_penalty,
     .symbol = "X",
     .help = "the same for each of their occurrences",
     .allowed = "a finite number; 0 is off",
     .range = {-SamplingParameter::kMaxFloat, SamplingParameter::kMaxFloat},
     .input = {-100, 100},
     .neutral = 0,
     .is_common = true},
    {.name = "penalty_last_n",
     .member = &SamplingOptions::penalty_last_n,
     .symbol = "N",
     .help = "tokens at the end of the text that these penalties see; 0: none, -1: all",
     .allowed = "-1 (all), 0 (none) or more",
     .range = {-1, SamplingParameter::kMaxInteger},
     .input = {-1, SamplingParameter::kMaxInteger},
     .aliases = kPenaltyWindowAliases,
     .neutral = -1,
     .is_common = true},
};

}  // namespace

extern const SamplerRow kPenaltiesSampler = {
    .name = "penalties",
    .kind = SamplerKind::kPenalty,
    .parameters = kPenaltiesParameters,
    .is_active = TokenHistory::has_penalties,
    .make = make_sampler_step<Penalties>,
};

}  // namespace redline
