// Shared parts of the two multi-step exponential integrators (DPM-Solver++, UniPC): levels as (alpha, sigma) with
// lambda = log(alpha / sigma), and the conversion of model outputs to samples. Lu et al. 2022, arXiv:2211.01095.
#pragma once

#include <algorithm>
#include <cmath>

#include "diffusion/noise_schedule.h"
#include "diffusion/solver.h"

namespace redline {

class Multistep : public Solver {
 protected:
  struct At {
    float alpha, sigma, lambda;
  };

  Multistep(SolverFields& fields, bool curve_is_bounded)
      : training_(fields, true, true), spacing_(fields, "linspace"), curve_(fields, curve_is_bounded),
        uses_flow_sigmas_(fields.boolean("use_flow_sigmas", false)),
        flow_shift_(fields.number("flow_shift", 1e-3, 1e3, 1)), dynamic_(fields),
        ends_at_least_(fields.choice("final_sigmas_type", {"zero", "sigma_min"}, "zero") == "sigma_min"),
        is_cosine_(fields.choice("beta_schedule", {"linear", "scaled_linear", "squaredcos_cap_v2"}, "linear") ==
                   "squaredcos_cap_v2"),
        order_(static_cast<size_t>(fields.integer("solver_order", 1, 2, 2))),
        lowers_order_at_end_(fields.boolean("lower_order_final", true)) {
    const std::string kind =
        fields.choice("prediction_type", {"epsilon", "sample", "v_prediction", "flow_prediction"}, "epsilon");
    prediction_ = kind == "epsilon"        ? PredictionType::kEpsilon
                  : kind == "sample"       ? PredictionType::kSample
                  : kind == "v_prediction" ? PredictionType::kVelocity
                                           : PredictionType::kFlow;
    fields.only("thresholding", false);
    if (dynamic_.enabled && !uses_flow_sigmas_)
      fields.fail(unsupported("config: use_dynamic_shifting without use_flow_sigmas"));
    is_flow_ = uses_flow_sigmas_;
  }

  At at(size_t index) const {
    const float sigma = layout().sigmas[index];
    const float alpha = uses_flow_sigmas_ ? 1 - sigma : 1 / std::sqrt(sigma * sigma + 1);
    const float spread = uses_flow_sigmas_ ? sigma : sigma * alpha;
    return {alpha, spread, std::log(alpha) - std::log(spread)};
  }
  Level level(size_t index) const override {
    const At here = at(index);
    return {here.alpha, here.sigma};
  }

  PredictionType prediction_type() const override { return prediction_; }

  /// Returns the sample (x0) predicted by a model output.
  float original_sample(const At& here, float sigma, float x, float output) const {
    switch (prediction_) {
      case PredictionType::kEpsilon: return (x - here.sigma * output) / here.alpha;
      case PredictionType::kVelocity: return here.alpha * x - here.sigma * output;
      case PredictionType::kFlow: return x - sigma * output;
      case PredictionType::kSample: break;
    }
    return output;
  }

  Status check(const StepPlan& plan) const {
    if (!plan.sigmas.empty()) return unsupported("this solver takes no sigmas; flow-euler does");
    if (plan.even_sigmas && !uses_flow_sigmas_)
      return unsupported("a flow model needs use_flow_sigmas in this solver's config");
    if (plan.eta != 0) return invalid_argument("eta is {}; only DDIM has it", plan.eta);
    return {};
  }
  /// Computes sigmas and timesteps of the curve. The caller adds the last sigma.
  void lay_out_curve(int steps, bool rounds, std::vector<double>& timesteps, std::vector<double>& sigmas) const {
    sigmas = curve_.sigmas(training_.sigmas().back(), training_.sigmas().front(), steps);
    timesteps.clear();
    for (double sigma : sigmas) {
      const double t = training_.timestep_of(sigma);
      timesteps.push_back(rounds ? std::nearbyint(t) : t);
    }
  }
  /// Truncates timesteps to whole numbers, as in diffusers.
  static Layout layout_of(const std::vector<double>& timesteps, const std::vector<double>& sigmas, double last) {
    Layout layout;
    for (double t : timesteps) layout.timesteps.push_back(static_cast<float>(static_cast<int64_t>(t)));
    layout.sigmas.assign(sigmas.begin(), sigmas.end());
    layout.sigmas.push_back(static_cast<float>(last));
    return layout;
  }

  TrainingSchedule training_;
  Spacing spacing_;
  SigmaCurve curve_;
  bool uses_flow_sigmas_;
  double flow_shift_;
  DynamicShift dynamic_;
  bool ends_at_least_, is_cosine_;
  size_t order_;
  bool lowers_order_at_end_;
  PredictionType prediction_;
};

}  // namespace redline
