// Temperature, and dynamic temperature ("dynatemp" of llama.cpp), which follows the entropy of the candidates.
#include <algorithm>
#include <cmath>

#include "llm/samplers/sampler_row.h"

namespace redline {
namespace {

class Temperature final : public SamplerStep {
 public:
  explicit Temperature(const SamplerContext& c)
      : temperature_(c.options.temperature), range_(c.options.dynatemp_range), exponent_(c.options.dynatemp_exponent) {}

  std::optional<float> fixed_temperature() const override {
    if (range_ == 0) return temperature_;
    return std::nullopt;
  }
  DeviceOrder add_to(SampleRow& row) const override {
    if (range_ != 0) return DeviceOrder::kNone;
    row.scale = scale_of(temperature_);
    return DeviceOrder::kTemperature;
  }
  /// The temperature depends on the entropy relative to its maximum, which equally likely candidates have.
  void apply(Candidates& candidates, int64_t /*position*/) override {
    if (range_ == 0) return candidates.set_temperature(temperature_);
    if (candidates.size() < 2) return;
    const double least = std::max(0.0, double{temperature_} - double{range_});
    const double most = double{temperature_} + double{range_};
    const double share = std::clamp(candidates.entropy() / std::log(static_cast<double>(candidates.size())), 0.0, 1.0);
    const auto temperature = static_cast<float>(least + (most - least) * std::pow(share, double{exponent_}));
    if (temperature > 0) candidates.set_temperature(temperature);
    else candidates.keep_top_k(1);
  }

 private:
  float temperature_, range_, exponent_;
};

constexpr std::string_view kTemperatureAliases[] = {"temp"};
constexpr std::string_view kDynatempExponentAliases[] = {"dynatemp_exp"};
constexpr SamplingParameter kTemperatureParameters[] = {
    {.name = "temperature",
     .member = &SamplingOptions::temperature,
     .symbol = "T",
     .help = "sampling temperature; 0 always takes the most likely token",
     .allowed = "a finite number, 0 (greedy) or more",
     .range = {0, SamplingParameter::kMaxFloat},
     .input = {0, 100},
     .aliases = kTemperatureAliases,
     .neutral = 1,
     .is_of_model = true,
     .is_common = true},
    {.name = "dynatemp_range",
     .member = &SamplingOptions::dynatemp_range,
     .symbol = "X",
     .help = "the temperature goes from T - X to T + X, by the entropy of the distribution; 0 is off",
     .allowed = "a finite number, 0 (off) or more",
     .range = {0, SamplingParameter::kMaxFloat},
     .input = {0, 100},
     .neutral = 0},
    {.name = "dynatemp_exponent",
     .member = &SamplingOptions::dynatemp_exponent,
     .symbol = "X",
     .help = "with a range of temperatures: exponent of the entropy",
     .allowed = "a finite number, 0 or more",
     .range = {0, SamplingParameter::kMaxFloat},
     .input = {0, 1000},
     .aliases = kDynatempExponentAliases,
     .depends_on = "dynatemp_range"},
};

}  // namespace

extern const SamplerRow kTemperatureSampler = {
    .name = "temperature",
    .aliases = kTemperatureAliases,
    .kind = SamplerKind::kTemperature,
    .parameters = kTemperatureParameters,
    .is_active = [](const SamplingOptions& o) { return o.temperature != 1 || o.dynatemp_range > 0; },
    .make = make_sampler_step<Temperature>,
};

}  // namespace redline
