// Denoising diffusion implicit models: Song et al. 2020, arXiv:2010.02502, equation 12; eta scales DDPM's
// noise. Follows diffusers' DDIMScheduler.
#include "diffusion/solver_row.h"
#include "diffusion/solvers/variance_preserving.h"

namespace redline {
namespace {

class Ddim final : public VariancePreserving {
 public:
  explicit Ddim(SolverFields& fields)
      : VariancePreserving(TrainingSchedule(fields, true, false), fields.boolean("set_alpha_to_one", true)),
        spacing_(fields, "leading"), prediction_(fields, true) {}

 private:
  Result<Layout> lay_out(const StepPlan& plan) override {
    if (plan.steps > training().size())
      return invalid_argument("{} steps; the model was trained with {} timesteps", plan.steps, training().size());
    eta_ = static_cast<float>(plan.eta);
    stride_ = training().size() / plan.steps;
    return with_sigmas(spacing_.timesteps(plan.steps, training().size(), training().size(), 0, true), plan);
  }

  PredictionType prediction_type() const override { return prediction_.kind; }

  void advance(const Step& s, NoiseSource& noise) override {
    const int64_t t = timestep(s.index);
    const float here = alpha(t), next = alpha(t - stride_);
    const float signal = std::sqrt(here), spread = std::sqrt(1 - here);
    const float variance = (1 - next) / (1 - here) * (1 - here / next);
    const float deviation = eta_ * std::sqrt(variance), next_signal = std::sqrt(next);
    const float direction = std::sqrt(1 - next - deviation * deviation);
    const std::span<const float> fresh = eta_ > 0 ? draw(noise, s.x.size()) : std::span<const float>();
    for (size_t i = 0; i < s.x.size(); ++i) {
      const float original = prediction_.original_sample(s.x[i], s.output[i], signal, spread);
      float epsilon = s.output[i];
      if (prediction_.kind == PredictionType::kSample) epsilon = (s.x[i] - signal * s.output[i]) / spread;
      if (prediction_.kind == PredictionType::kVelocity) epsilon = signal * s.output[i] + spread * s.x[i];
      s.x[i] = next_signal * original + direction * epsilon;
      if (eta_ > 0) s.x[i] += deviation * fresh[i];
    }
  }

  Spacing spacing_;
  Prediction prediction_;
  float eta_ = 0;
  int64_t stride_ = 1;
};

}  // namespace

extern const SolverRow kDdimSolver = {
    .name = "ddim",
    .class_name = "DDIMScheduler",
    .web_ui_name = "DDIM",
    .comfyui_name = "ddim",
    .models = SolverModels::kDiffusion,
    .make = make_solver<Ddim>,
};

}  // namespace redline
