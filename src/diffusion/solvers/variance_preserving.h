// Base class of DDIM, PNDM and LCM: x = sqrt(alpha) * sample + sqrt(1 - alpha) * noise at whole training timesteps.
#pragma once

#include <algorithm>
#include <cmath>

#include "diffusion/noise_schedule.h"
#include "diffusion/solver.h"

namespace redline {

class VariancePreserving : public Solver {
 protected:
  float alpha(int64_t t) const { return t < 0 ? final_alpha_ : training_.alpha(t); }
  int64_t timestep(size_t index) const { return static_cast<int64_t>(layout().timesteps[index]); }
  Level level(size_t index) const override {
    const float kept = alpha(timestep(index));
    return {std::sqrt(kept), std::sqrt(1 - kept)};
  }

  VariancePreserving(TrainingSchedule training, bool ends_at_one) : training_(std::move(training)) {
    final_alpha_ = ends_at_one ? 1 : training_.alpha(0);
  }
  const TrainingSchedule& training() const { return training_; }

  /// Checks the timesteps and adds their sigmas.
  Result<Layout> with_sigmas(const std::vector<double>& timesteps, const StepPlan& plan) const {
    if (!plan.sigmas.empty() || plan.even_sigmas) return unsupported("this solver takes no sigmas; flow-euler does");
    Layout layout;
    layout.timesteps.assign(timesteps.begin(), timesteps.end());
    REDLINE_TRY(training_.expect_within(layout.timesteps));
    for (float t : layout.timesteps) layout.sigmas.push_back(training_.sigmas()[static_cast<size_t>(t)]);
    layout.sigmas.push_back(std::sqrt((1 - final_alpha_) / final_alpha_));
    return layout;
  }

  /// Computes the sample (x0) predicted by a model output.
  struct Prediction {
    PredictionType kind = PredictionType::kEpsilon;
    bool clips = false;
    float range = 1;
    Prediction() = default;
    explicit Prediction(SolverFields& fields, bool clip_sample) {
      const std::string name = fields.choice("prediction_type", {"epsilon", "sample", "v_prediction"}, "epsilon");
      kind = name == "epsilon"  ? PredictionType::kEpsilon
             : name == "sample" ? PredictionType::kSample
                                : PredictionType::kVelocity;
      clips = fields.boolean("clip_sample", clip_sample);
      range = static_cast<float>(fields.number("clip_sample_range", 0, 1e6, 1));
      fields.only("thresholding", false);
    }
    /// `signal` and `noise` are the square roots of alpha and 1 - alpha.
    float original_sample(float x, float output, float signal, float noise) const {
      const float value = kind == PredictionType::kEpsilon  ? (x - noise * output) / signal
                          : kind == PredictionType::kSample ? output
                                                            : signal * x - noise * output;
      return clips ? std::clamp(value, -range, range) : value;
    }
  };

 private:
  TrainingSchedule training_;
  float final_alpha_ = 1;
};

}  // namespace redline
