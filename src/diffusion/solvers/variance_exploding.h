// Base class of the two Euler solvers in the form x = sample + sigma * noise.
#pragma once

#include <algorithm>
#include <cmath>

#include "diffusion/noise_schedule.h"
#include "diffusion/solver.h"

namespace redline {

class VarianceExploding : public Solver {
 protected:
  VarianceExploding(SolverFields& fields, std::initializer_list<const char*> predictions)
      : training_(fields, true, true), spacing_(fields, "linspace") {
    const std::string kind = fields.choice("prediction_type", predictions, "epsilon");
    prediction_ = kind == "epsilon"        ? PredictionType::kEpsilon
                  : kind == "v_prediction" ? PredictionType::kVelocity
                                           : PredictionType::kSample;
  }

  // Computes the sample (x0) predicted by a model output.
  class Denoiser {
   public:
    Denoiser(PredictionType prediction, float sigma)
        : prediction_(prediction), sigma_(sigma), variance_(sigma * sigma + 1), factor_(-sigma / std::sqrt(variance_)) {
    }
    float operator()(float x, float output) const {
      if (prediction_ == PredictionType::kEpsilon) return x - sigma_ * output;
      return prediction_ == PredictionType::kSample ? output : output * factor_ + x / variance_;
    }

   private:
    PredictionType prediction_;
    float sigma_, variance_, factor_;
  };

  /// Returns timesteps and their sigmas, without the final sigma.
  Result<Layout> spaced(const StepPlan& plan) const {
    if (!plan.sigmas.empty() || plan.even_sigmas) return unsupported("Euler solvers take no sigmas; flow-euler does");
    if (plan.eta != 0) return invalid_argument("eta is {}; only DDIM has it", plan.eta);
    Layout layout;
    for (double t : spacing_.timesteps(plan.steps, training_.size(), training_.size(), 0, false)) {
      layout.timesteps.push_back(static_cast<float>(t));
      layout.sigmas.push_back(static_cast<float>(training_.sigma_at(layout.timesteps.back())));
    }
    return layout;
  }
  void set_init_noise(Layout& layout) const {
    const float most = *std::max_element(layout.sigmas.begin(), layout.sigmas.end());
    layout.init_noise_sigma = spacing_.kind == "leading" ? std::sqrt(most * most + 1) : most;
  }
  float input_scale(size_t index) const override {
    const float sigma = layout().sigmas[index];
    return std::sqrt(sigma * sigma + 1);
  }
  Level level(size_t index) const override { return {1, layout().sigmas[index]}; }

  const TrainingSchedule& training() const { return training_; }
  PredictionType prediction_type() const override { return prediction_; }

 private:
  TrainingSchedule training_;
  Spacing spacing_;
  PredictionType prediction_ = PredictionType::kEpsilon;
};

}  // namespace redline
