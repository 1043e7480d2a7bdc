// Pseudo linear multi-step: the noise estimate is extrapolated over up to four steps; the first step is taken twice,
// which costs one more evaluation. Liu et al. 2022, arXiv:2202.09778. Follows diffusers' PNDMScheduler with
// skip_prk_steps, the default scheduler of Stable Diffusion 1.5.
#include "diffusion/solver_row.h"
#include "diffusion/solvers/variance_preserving.h"

namespace redline {
namespace {

class Pndm final : public VariancePreserving {
 public:
  explicit Pndm(SolverFields& fields)
      : VariancePreserving(TrainingSchedule(fields, false, false), fields.boolean("set_alpha_to_one", false)),
        spacing_(fields, "leading"),
        is_velocity_(fields.choice("prediction_type", {"epsilon", "v_prediction"}, "epsilon") == "v_prediction") {
    if (!fields.boolean("skip_prk_steps", false))
      fields.fail(unsupported("config: skip_prk_steps is false; Redline does PNDM without Runge-Kutta steps only"));
  }

 private:
  Result<Layout> lay_out(const StepPlan& plan) override {
    if (plan.eta != 0) return invalid_argument("eta is {}; only DDIM has it", plan.eta);
    if (plan.steps > training().size())
      return invalid_argument("{} steps; the model was trained with {} timesteps", plan.steps, training().size());
    stride_ = training().size() / plan.steps;
    std::vector<double> timesteps = spacing_.timesteps(plan.steps, training().size(), training().size(), 0, true);
    if (timesteps.size() > 1) timesteps.insert(timesteps.begin() + 1, timesteps[1]);
    past_.clear();
    return with_sigmas(timesteps, plan);
  }

  PredictionType prediction_type() const override {
    return is_velocity_ ? PredictionType::kVelocity : PredictionType::kEpsilon;
  }

  void advance(const Step& s, NoiseSource&) override {
    int64_t from = timestep(s.index), to = from - stride_;
    if (s.taken == 1) {  // repeats the first step with the mean of the outputs at both ends
      to = from;
      from += stride_;
    } else {
      if (past_.size() == 4) std::rotate(past_.begin(), past_.begin() + 1, past_.end());
      else past_.emplace_back();
      past_.back().assign(s.output.begin(), s.output.end());
    }
    if (s.taken == 0) start_.assign(s.x.begin(), s.x.end());
    const bool repeats = s.taken == 1;
    const float here = alpha(std::min(from, training().size() - 1)), next = alpha(to);
    const float signal = std::sqrt(here), spread = std::sqrt(1 - here);
    const float keep = std::sqrt(next / here);
    const float divisor = here * std::sqrt(1 - next) + std::sqrt(here * (1 - here) * next);
    const size_t known = past_.size();
    const auto e = [&](size_t back, size_t i) { return past_[known - back][i]; };
    for (size_t i = 0; i < s.x.size(); ++i) {
      const float x = repeats ? start_[i] : s.x[i];
      float output = s.output[i];
      if (repeats) output = (output + e(1, i)) / 2;
      else if (known == 2) output = (3 * e(1, i) - e(2, i)) / 2;
      else if (known == 3) output = (23 * e(1, i) - 16 * e(2, i) + 5 * e(3, i)) / 12;
      else if (known == 4)
        output = static_cast<float>(1 / 24.0) * (55 * e(1, i) - 59 * e(2, i) + 37 * e(3, i) - 9 * e(4, i));
      if (is_velocity_) output = signal * output + spread * x;
      s.x[i] = keep * x - (next - here) * output / divisor;
    }
  }

  Spacing spacing_;
  bool is_velocity_;
  int64_t stride_ = 1;
  std::vector<std::vector<float>> past_;  ///< up to four outputs, oldest first
  std::vector<float> start_;
};

}  // namespace

extern const SolverRow kPndmSolver = {
    .name = "pndm",
    .class_name = "PNDMScheduler",
    .web_ui_name = "PLMS",
    .comfyui_name = "ipndm",
    .models = SolverModels::kDiffusion,
    .make = make_solver<Pndm>,
};

}  // namespace redline
