// Mirostat 1 and 2 (Basu et al. 2020, arXiv:2007.14966): holds the surprise of the text, in place of truncations.
#include <cmath>

#include "llm/samplers/sampler_row.h"

namespace redline {
namespace {

class Mirostat final : public SamplerStep {
 public:
  explicit Mirostat(const SamplerContext& c)
      : version_(c.options.mirostat), vocab_size_(c.vocab_size), tau_(double{c.options.mirostat_tau}),
        eta_(double{c.options.mirostat_eta}), mu_(2 * tau_) {}
  void apply(Candidates& candidates, int64_t /*position*/) override {
    if (version_ == 1) candidates.keep_zipf(mu_, vocab_size_);
    else candidates.keep_surprise(mu_);
  }
  void observe(const Candidates::Drawn& drawn) override { mu_ -= eta_ * (-std::log2(drawn.probability) - tau_); }
  double state() const override { return mu_; }
  void set_state(double state) override { mu_ = state; }

 private:
  int version_;
  int64_t vocab_size_;
  double tau_, eta_;
  double mu_;  ///< bits
};

constexpr std::string_view kMirostatTauAliases[] = {"mirostat_ent"};
constexpr std::string_view kMirostatEtaAliases[] = {"mirostat_lr"};
constexpr SamplingParameter kMirostatParameters[] = {
    {.name = "mirostat",
     .member = &SamplingOptions::mirostat,
     .symbol = "1|2",
     .help = "Mirostat in place of the truncations; 0 is off",
     .allowed = "0 (off), 1 or 2",
     .range = {0, 2},
     .input = {0, 2},
     .neutral = 0},
    {.name = "mirostat_tau",
     .member = &SamplingOptions::mirostat_tau,
     .symbol = "BITS",
     .help = "with Mirostat: surprise to hold, in bits",
     .allowed = "a finite number, 0 or more",
     .range = {0, SamplingParameter::kMaxFloat},
     .input = {0, 1000},
     .aliases = kMirostatTauAliases,
     .depends_on = "mirostat"},
    {.name = "mirostat_eta",
     .member = &SamplingOptions::mirostat_eta,
     .symbol = "X",
     .help = "with Mirostat: learning rate",
     .allowed = "a finite number, 0 or more",
     .range = {0, SamplingParameter::kMaxFloat},
     .input = {0, 1000},
     .aliases = kMirostatEtaAliases,
     .depends_on = "mirostat"},
};

}  // namespace

extern const SamplerRow kMirostatSampler = {
    .name = "mirostat",
    .kind = SamplerKind::kFeedback,
    .parameters = kMirostatParameters,
    .is_active = [](const SamplingOptions& o) { return o.mirostat != 0; },
    .make = make_sampler_step<Mirostat>,
};

}  // namespace redline
