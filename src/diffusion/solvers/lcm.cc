// Latent consistency models: each step predicts the sample, blended by the boundary condition, and adds noise up to
// the next level. Luo et al. 2023, arXiv:2310.04378, appendix D. Follows diffusers' LCMScheduler.
#include "diffusion/solver_row.h"
#include "diffusion/solvers/variance_preserving.h"

namespace redline {
namespace {

class Lcm final : public VariancePreserving {
 public:
  explicit Lcm(SolverFields& fields)
      : VariancePreserving(TrainingSchedule(fields, true, false, 0.00085, 0.012, "scaled_linear"),
                           fields.boolean("set_alpha_to_one", true)),
        prediction_(fields, false), distilled_steps_(fields.integer("original_inference_steps", 1, 100000, 50)),
        scaling_(static_cast<float>(fields.number("timestep_scaling", 0, 1e6, 10))) {
    // Fields that the class has and does not use: the timesteps are the distilled model's.
    fields.choice("timestep_spacing", {"leading", "linspace", "trailing"}, "leading");
    fields.integer("steps_offset", -1000, 1000, 0);
    if (distilled_steps_ > training().size())
      fields.fail(invalid_argument("config: {} original_inference_steps of {} num_train_timesteps", distilled_steps_,
                                   training().size()));
  }

 private:
  Result<Layout> lay_out(const StepPlan& plan) override {
    if (plan.eta != 0) return invalid_argument("eta is {}; only DDIM has it", plan.eta);
    if (plan.steps > distilled_steps_)
      return invalid_argument("{} steps; the schedule of the distillation has {}", plan.steps, distilled_steps_);
    const int64_t stride = training().size() / distilled_steps_;
    const double ratio = static_cast<double>(distilled_steps_) / plan.steps;
    std::vector<double> timesteps;
    for (int i = 0; i < plan.steps; ++i) {
      const auto from_top = static_cast<int64_t>(std::floor(i * ratio));
      timesteps.push_back(static_cast<double>((distilled_steps_ - from_top) * stride - 1));
    }
    last_ = static_cast<size_t>(plan.steps - 1);
    return with_sigmas(timesteps, plan);
  }

  PredictionType prediction_type() const override { return prediction_.kind; }

  void advance(const Step& s, NoiseSource& noise) override {
    const int64_t t = timestep(s.index);
    const bool is_last = s.index == last_;
    const float here = alpha(t), next = alpha(is_last ? t : timestep(s.index + 1));
    const float signal = std::sqrt(here), spread = std::sqrt(1 - here);
    const float next_signal = std::sqrt(next), next_spread = std::sqrt(1 - next);
    const float scaled = static_cast<float>(t) * scaling_, square = scaled * scaled + 0.25f;  // sigma_data 0.5
    const float keep = 0.25f / square, take = scaled / std::sqrt(square);
    const std::span<const float> fresh = is_last ? std::span<const float>() : draw(noise, s.x.size());
    for (size_t i = 0; i < s.x.size(); ++i) {
      const float original = prediction_.original_sample(s.x[i], s.output[i], signal, spread);
      s.x[i] = take * original + keep * s.x[i];
      if (!is_last) s.x[i] = next_signal * s.x[i] + next_spread * fresh[i];
    }
  }

  Prediction prediction_;
  int64_t distilled_steps_;
  float scaling_;
  size_t last_ = 0;
};

}  // namespace

extern const SolverRow kLcmSolver = {
    .name = "lcm",
    .class_name = "LCMScheduler",
    .web_ui_name = "LCM",
    .comfyui_name = "lcm",
    .models = SolverModels::kDiffusion,
    .make = make_solver<Lcm>,
};

}  // namespace redline
