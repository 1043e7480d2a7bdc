// Euler steps of flow matching: x changes by the velocity times the change of sigma. Esser et al. 2024,
// arXiv:2403.03206. Follows diffusers' FlowMatchEulerDiscreteScheduler.
#include <cmath>

#include "diffusion/noise_schedule.h"
#include "diffusion/solver_row.h"

namespace redline {
namespace {

class FlowEuler final : public Solver {
 public:
  explicit FlowEuler(SolverFields& fields)
      : train_steps_(fields.integer("num_train_timesteps", 2, 100000, 1000)),
        shift_(fields.number("shift", 1e-3, 1e3, 1)), dynamic_(fields),
        terminal_(fields.optional_number("shift_terminal", 0, 0.999).value_or(0)), curve_(fields, false),
        is_stochastic_(fields.boolean("stochastic_sampling", false)) {
    fields.only("invert_sigmas", false);
    is_flow_ = true;
  }

 private:
  // Shifts sigmas. T is float for sigmas of the caller and double for the solver's own, as in diffusers.
  template <class T>
  Result<std::vector<double>> shifted(std::vector<T> sigmas, int64_t image_tokens) const {
    if (dynamic_.enabled) {
      REDLINE_ASSIGN(const double mu, dynamic_.mu(image_tokens));
      const auto weight = static_cast<T>(dynamic_.is_linear ? mu : std::exp(mu));
      for (T& sigma : sigmas) sigma = weight / (weight + (1 / sigma - 1));
    } else {
      const auto shift = static_cast<T>(shift_), more = static_cast<T>(shift_ - 1);
      for (T& sigma : sigmas) sigma = shift * sigma / (1 + more * sigma);
    }
    if (terminal_ > 0) {
      const T scale = (1 - sigmas.back()) / static_cast<T>(1 - terminal_);
      if (scale > 0)
        for (T& sigma : sigmas) sigma = 1 - (1 - sigma) / scale;
    }
    return std::vector<double>(sigmas.begin(), sigmas.end());
  }

  Result<Layout> lay_out(const StepPlan& plan) override {
    std::vector<double> sigmas;
    if (!plan.sigmas.empty()) {
      REDLINE_ASSIGN(sigmas, shifted(plan.sigmas, plan.image_tokens));
    } else if (plan.even_sigmas) {
      const std::vector<double> even = linspace(1, 1.0 / plan.steps, plan.steps);
      REDLINE_ASSIGN(sigmas, shifted(std::vector<float>(even.begin(), even.end()), plan.image_tokens));
    } else {
      // Timesteps are even over the training range, whose ends a static shift has already moved once.
      const auto all = static_cast<double>(train_steps_);
      float ends[2] = {1, 1 / static_cast<float>(train_steps_)};
      const auto shift = static_cast<float>(shift_), more = static_cast<float>(shift_ - 1);
      if (!dynamic_.enabled)
        for (float& end : ends) end = shift * end / (1 + more * end);
      sigmas = linspace(ends[0] * all, ends[1] * all, plan.steps);
      for (double& sigma : sigmas) sigma /= all;
      REDLINE_ASSIGN(sigmas, shifted(std::move(sigmas), plan.image_tokens));
    }
    if (curve_) sigmas = curve_.sigmas(sigmas.front(), sigmas.back(), plan.steps);
    Layout layout;
    layout.sigmas.assign(sigmas.begin(), sigmas.end());
    for (float sigma : layout.sigmas) layout.timesteps.push_back(sigma * static_cast<float>(train_steps_));
    layout.sigmas.push_back(0);
    return layout;
  }

  Level level(size_t index) const override {
    const float sigma = layout().sigmas[index];
    return {1 - sigma, sigma};
  }

  PredictionType prediction_type() const override { return PredictionType::kFlow; }
  bool adds_model_output() const override { return !is_stochastic_; }

  void advance(const Step& s, NoiseSource& noise) override {
    const float sigma = layout().sigmas[s.index], next = layout().sigmas[s.index + 1], change = next - sigma;
    if (!is_stochastic_) {
      for (size_t i = 0; i < s.x.size(); ++i) s.x[i] += change * s.output[i];
      return;
    }
    const std::span<const float> fresh = draw(noise, s.x.size());
    for (size_t i = 0; i < s.x.size(); ++i) s.x[i] = (1 - next) * (s.x[i] - sigma * s.output[i]) + next * fresh[i];
  }

  int64_t train_steps_;
  double shift_;
  DynamicShift dynamic_;
  double terminal_;
  SigmaCurve curve_;
  bool is_stochastic_;
};

}  // namespace

extern const SolverRow kFlowEulerSolver = {
    .name = "flow-euler",
    .class_name = "FlowMatchEulerDiscreteScheduler",
    .web_ui_name = "Euler",
    .comfyui_name = "euler",
    .models = SolverModels::kFlow,
    .make = make_solver<FlowEuler>,
};

}  // namespace redline
