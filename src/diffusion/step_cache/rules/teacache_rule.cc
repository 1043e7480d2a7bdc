// TeaCache (ali-vilab/TeaCache, arXiv:2411.19108): accumulates a polynomial of the relative L1 change of the first
// block's modulated input, skips while the sum stays below `threshold`, and reuses the residual of the whole stack. The
// first and last steps are computed.
//
// The polynomials were fitted by its authors, one for each checkpoint. Their value at 0 is not 0, and is negative for
// some checkpoints, so the sum may decrease.
#include <fmt/ranges.h>

#include "base/text_distance.h"
#include "diffusion/step_cache/rule.h"

namespace redline {
namespace {

struct Fit {
  const char* name;
  std::vector<double> coefficients;  ///< from the fourth power down
};

const std::vector<Fit>& fits() {
  static const std::vector<Fit> kFits = {
      {"flux", {498.651651, -283.781631, 55.8554382, -3.82021401, 0.264230861}},
      {"hunyuan-video", {733.226126, -401.131952, 67.5869174, -3.149878, 0.0961237896}},
      {"ltx-video", {21.4700694, -12.8016453, 2.31279151, 0.792487521, 0.00969274326}},
      {"cogvideox-2b", {-31.0658903, 25.4732368, -5.92380459, 1.75769064, -0.00361568434}},
      {"cogvideox-5b", {-1538.80483, 843.202495, -134.363087, 7.97131516, -0.0523162339}},
      {"mochi", {-3512.41319, 811.675948, -60.9400215, 2.42429681, 0.00305291719}},
      {"cosmos", {271.156237, -91.9775607, 2.2443725, 2.08355751, 0.14177633}},
      {"hidream-i1", {-31360.5009, -712.425503, 49.1363285, 8.2651549, 0.108053901}},
      {"lumina", {393.765666, -603.509936, 209.102390, -23.0072660, 0.86377344}},
      {"wan-1.3b", {2396.76752, -1311.10545, 201.331979, -8.29855975, 0.137887774}},
      {"wan-1.3b-retention", {-52186.2437, 9230.41404, -528.275948, 13.6987616, -0.0499875664}},
      {"wan-14b", {-5784.54975, 5449.50912, -1811.16592, 256.271784, -13.0225240}},
      {"wan-14b-retention", {-303318.725, 49053.7029, -2655.30556, 58.7365115, -0.315583525}},
      {"wan-i2v-480", {-302.331670, 223.948934, -52.5463970, 5.87348440, -0.201973289}},
      {"wan-i2v-480-retention", {257151.496, -35422.9917, 1402.86849, -13.5890334, 0.132517977}},
      {"wan-i2v-720", {-114.363465, 65.2652450, -18.8222071, 4.91518089, -0.234126830}},
      {"wan-i2v-720-retention", {8107.05460, 2133.93892, -372.934672, 16.6203073, -0.0417769401}},
      {"identity", {0, 0, 0, 1, 0}},
  };
  return kFits;
}

constexpr RuleParameter kTeacacheParameters[] = {
    {"threshold", ParameterKind::kNumber, "0.4", 0, 100, "sum below which steps are skipped", /*sets_cost=*/true},
    {"model", ParameterKind::kName, "flux", 0, 0, "whose polynomial; identity: the change itself"},
    {"coefficients", ParameterKind::kNumbers, "", 0, 0,
     "a polynomial of this model, from the highest power, as 2/-1/0"},
};

Result<RulePlan> plan_teacache(const RuleValues& values, const RuleRequest&) {
  std::vector<std::string_view> names;
  const Fit* fit = nullptr;
  for (const Fit& f : fits()) {
    names.emplace_back(f.name);
    if (values.text("model") == f.name) fit = &f;
  }
  if (fit == nullptr)
    return not_found("no polynomial for \"{}\"{}; there are {}", values.text("model"),
                     the_nearest(values.text("model"), names), fmt::join(names, ", "));
  RulePlan plan;
  plan.span = SkippedSpan::kBlocks;
  plan.decision = Decision::kSumBelow;
  plan.threshold = values.number("threshold");
  const std::vector<double> own = values.list("coefficients");
  plan.statistic = [own, fit](int64_t) {
    return make_modulated_input_statistic(own.empty() ? fit->coefficients : own);
  };
  plan.guards.last.is_computed = true;
  return plan;
}

}  // namespace

extern const RuleRow kTeacacheRule = {
    .name = "teacache",
    .summary = "sum of a fitted polynomial of the modulated input's change",
    .source = "ali-vilab/TeaCache",
    .parameters = kTeacacheParameters,
    .threshold_at_half = 0.4,
    .knob = {TuningKnob::Kind::kThreshold, "threshold", 1e-3, 50},
    .plan = plan_teacache,
};

}  // namespace redline
