// Euler steps to below the next sigma, and fresh noise up to it: k-diffusion's ancestral sampling. Follows diffusers'
// EulerAncestralDiscreteScheduler.
#include "diffusion/solver_row.h"
#include "diffusion/solvers/variance_exploding.h"

namespace redline {
namespace {

class EulerAncestral final : public VarianceExploding {
 public:
  explicit EulerAncestral(SolverFields& fields) : VarianceExploding(fields, {"epsilon", "v_prediction"}) {}

 private:
  Result<Layout> lay_out(const StepPlan& plan) override {
    REDLINE_ASSIGN(Layout layout, spaced(plan));
    layout.sigmas.push_back(0);
    set_init_noise(layout);
    return layout;
  }

  void advance(const Step& s, NoiseSource& noise) override {
    const float from = layout().sigmas[s.index], to = layout().sigmas[s.index + 1];
    const float up = std::sqrt(to * to * (from * from - to * to) / (from * from));
    const float down = std::sqrt(to * to - up * up), change = down - from;
    const Denoiser denoise(prediction_type(), from);
    const std::span<const float> fresh = draw(noise, s.x.size());
    for (size_t i = 0; i < s.x.size(); ++i) {
      const float slope = (s.x[i] - denoise(s.x[i], s.output[i])) / from;
      s.x[i] = s.x[i] + slope * change + fresh[i] * up;
    }
  }
};

}  // namespace

extern const SolverRow kEulerAncestralSolver = {
    .name = "euler-ancestral",
    .class_name = "EulerAncestralDiscreteScheduler",
    .web_ui_name = "Euler a",
    .comfyui_name = "euler_ancestral",
    .models = SolverModels::kDiffusion,
    .make = make_solver<EulerAncestral>,
};

}  // namespace redline
