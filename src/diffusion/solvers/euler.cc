// Euler steps in the variance-exploding form x = sample + sigma * noise: Karras et al. 2022, arXiv:2206.00364,
// algorithm 2 without churn. Follows diffusers' EulerDiscreteScheduler.
#include <algorithm>
#include <cmath>

#include "diffusion/noise_schedule.h"
#include "diffusion/solver_row.h"
#include "diffusion/solvers/variance_exploding.h"

namespace redline {
namespace {

class Euler final : public VarianceExploding {
 public:
  explicit Euler(SolverFields& fields)
      : VarianceExploding(fields, {"epsilon", "v_prediction", "sample"}), curve_(fields, true),
        ends_at_least_(fields.choice("final_sigmas_type", {"zero", "sigma_min"}, "zero") == "sigma_min") {
    fields.only("interpolation_type", "linear");
    fields.only("timestep_type", "discrete");
  }

 private:
  Result<Layout> lay_out(const StepPlan& plan) override {
    REDLINE_ASSIGN(Layout layout, spaced(plan));
    if (curve_) {
      const std::vector<double> sigmas = curve_.sigmas(training().sigma_at(layout.timesteps.front()),
                                                       training().sigma_at(layout.timesteps.back()), plan.steps);
      layout.sigmas.assign(sigmas.begin(), sigmas.end());
      layout.timesteps.clear();
      for (double sigma : sigmas) layout.timesteps.push_back(static_cast<float>(training().timestep_of(sigma)));
    }
    layout.sigmas.push_back(ends_at_least_ ? training().sigmas().front() : 0);
    set_init_noise(layout);
    return layout;
  }

  // With epsilon prediction (x - denoised) / sigma is the model's output.
  bool adds_model_output() const override { return prediction_type() == PredictionType::kEpsilon; }

  void advance(const Step& s, NoiseSource&) override {
    const float sigma = layout().sigmas[s.index], change = layout().sigmas[s.index + 1] - sigma;
    const Denoiser denoise(prediction_type(), sigma);
    for (size_t i = 0; i < s.x.size(); ++i) s.x[i] += (s.x[i] - denoise(s.x[i], s.output[i])) / sigma * change;
  }

  SigmaCurve curve_;
  bool ends_at_least_;
};

}  // namespace

extern const SolverRow kEulerSolver = {
    .name = "euler",
    .class_name = "EulerDiscreteScheduler",
    .web_ui_name = "Euler",
    .comfyui_name = "euler",
    .models = SolverModels::kDiffusion,
    .make = make_solver<Euler>,
};

}  // namespace redline
