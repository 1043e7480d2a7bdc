// DPM-Solver++ of first and second order (2M), and its stochastic form: Lu et al. 2022, arXiv:2211.01095, algorithm 2
// and section 4. Follows diffusers' DPMSolverMultistepScheduler with algorithm types dpmsolver++ and sde-dpmsolver++.
#include "diffusion/solver_row.h"
#include "diffusion/solvers/multistep.h"

namespace redline {
namespace {

class DpmMultistep final : public Multistep {
 public:
  explicit DpmMultistep(SolverFields& fields)
      : Multistep(fields, false), is_stochastic_(fields.choice("algorithm_type", {"dpmsolver++", "sde-dpmsolver++"},
                                                               "dpmsolver++") == "sde-dpmsolver++"),
        is_heun_(fields.choice("solver_type", {"midpoint", "heun"}, "midpoint") == "heun"),
        ends_with_euler_(fields.boolean("euler_at_final", false)),
        min_lambda_(fields.optional_number("lambda_min_clipped", -1.7976931348623157e308, 1e3)) {
    fields.only("use_lu_lambdas", false);
    fields.only("variance_type", nullptr);
    if (dynamic_.enabled && dynamic_.is_linear)
      fields.fail(unsupported("config: time_shift_type is linear; this scheduler has exponential"));
    if (curve_ && uses_flow_sigmas_)
      fields.fail(unsupported("config: use_flow_sigmas together with another choice of sigmas"));
  }

 private:
  Result<Layout> lay_out(const StepPlan& plan) override {
    REDLINE_TRY(check(plan));
    previous_.clear();
    std::vector<double> timesteps, sigmas;
    if (curve_) {
      lay_out_curve(plan.steps, curve_.kind == SigmaCurve::kKarras && !is_cosine_, timesteps, sigmas);
    } else if (uses_flow_sigmas_) {
      double shift = flow_shift_;
      if (dynamic_.enabled) {
        REDLINE_ASSIGN(shift, dynamic_.mu(plan.image_tokens));
        shift = std::exp(shift);
      }
      const auto all = static_cast<double>(training_.size());
      for (double rest : linspace(1, 1 / all, plan.steps + 1)) {
        const double sigma = 1 - rest;
        sigmas.push_back(shift * sigma / (1 + (shift - 1) * sigma));
      }
      std::reverse(sigmas.begin(), sigmas.end());
      sigmas.pop_back();  // 0
      for (double sigma : sigmas) timesteps.push_back(sigma * all);
    } else {
      timesteps = spacing_.timesteps(plan.steps, used_timesteps(), training_.size(), 1, true);
      for (double t : timesteps) sigmas.push_back(training_.sigma_at(t));
    }
    Layout layout = layout_of(timesteps, sigmas, ends_at_least_ ? training_.sigmas().front() : 0);
    if (!uses_flow_sigmas_) REDLINE_TRY(training_.expect_within(layout.timesteps));
    return layout;
  }

  // Returns the number of timesteps whose lambda is at least lambda_min_clipped; all timesteps without that field.
  int64_t used_timesteps() const {
    int64_t used = training_.size();
    if (!min_lambda_) return used;
    const auto lambda = [&](int64_t t) {
      return std::log(std::sqrt(training_.alpha(t))) - std::log(std::sqrt(1 - training_.alpha(t)));
    };
    while (used > 2 && lambda(used - 1) < static_cast<float>(*min_lambda_)) --used;
    return used;
  }

  void advance(const Step& s, NoiseSource& noise) override {
    const size_t steps = layout().timesteps.size();
    const At here = at(s.index), next = at(s.index + 1);
    const float sigma = layout().sigmas[s.index], h = next.lambda - here.lambda;
    const bool is_last =
        s.index + 1 == steps && (ends_with_euler_ || (lowers_order_at_end_ && steps < 15) || !ends_at_least_);
    const bool second = order_ == 2 && s.taken > 0 && !is_last;
    const float inverse_ratio = second ? 1 / ((here.lambda - at(s.index - 1).lambda) / h) : 0;

    const float fall = std::exp(-h), twice = std::exp(-2 * h);
    const float keep = is_stochastic_ ? next.sigma / here.sigma * fall : next.sigma / here.sigma;
    // Coefficients of the predicted sample and of its change since the last step.
    const float take = next.alpha * (is_stochastic_ ? 1 - twice : fall - 1);
    float change = 0.5f * take;
    if (is_heun_) change = next.alpha * (is_stochastic_ ? (1 - twice) / (-2 * h) + 1 : (fall - 1) / h + 1);
    const float fresh_scale = next.sigma * std::sqrt(1 - twice);
    const std::span<const float> fresh = is_stochastic_ ? draw(noise, s.x.size()) : std::span<const float>();

    previous_.resize(s.x.size());
    for (size_t i = 0; i < s.x.size(); ++i) {
      const float now = original_sample(here, sigma, s.x[i], s.output[i]);
      float x = keep * s.x[i];
      x = is_stochastic_ ? x + take * now : x - take * now;
      if (second) {
        const float trend = inverse_ratio * (now - previous_[i]);
        x = is_stochastic_ || is_heun_ ? x + change * trend : x - change * trend;
      }
      if (is_stochastic_) x += fresh_scale * fresh[i];
      s.x[i] = x;
      previous_[i] = now;
    }
  }

  bool is_stochastic_, is_heun_, ends_with_euler_;
  std::optional<double> min_lambda_;
  std::vector<float> previous_;  ///< the predicted sample of the previous step
};

}  // namespace

extern const SolverRow kDpmMultistepSolver = {
    .name = "dpm++",
    .class_name = "DPMSolverMultistepScheduler",
    .web_ui_name = "DPM++ 2M",
    .comfyui_name = "dpmpp_2m",
    .models = SolverModels::kBoth,
    .make = make_solver<DpmMultistep>,
};

}  // namespace redline
