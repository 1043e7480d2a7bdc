// UniPC: DPM-Solver++ 2M as predictor, and a corrector that repeats the last step with the output at its end.
// Zhao et al. 2023, arXiv:2302.04867, algorithms 5 to 8, with B(h) = h (bh1) or e^h - 1 (bh2). Follows diffusers'
// UniPCMultistepScheduler with predict_x0 and order 1 or 2.
#include "diffusion/solver_row.h"
#include "diffusion/solvers/multistep.h"

namespace redline {
namespace {

class UniPc final : public Multistep {
 public:
  explicit UniPc(SolverFields& fields)
      : Multistep(fields, true), is_bh1_(fields.choice("solver_type", {"bh1", "bh2"}, "bh2") == "bh1"),
        terminal_(fields.optional_number("shift_terminal", 0, 0.999).value_or(0)) {
    fields.only("predict_x0", true);
    fields.only("solver_p", nullptr);
    for (double step : fields.numbers("disable_corrector"))
      if (std::abs(step) < 1e9) uncorrected_.push_back(static_cast<int64_t>(step));  // others are no steps
    if (terminal_ > 0 && !uses_flow_sigmas_)
      fields.fail(invalid_argument("config: shift_terminal needs use_flow_sigmas"));
    if (curve_ && uses_flow_sigmas_ && curve_.kind != SigmaCurve::kKarras)
      fields.fail(unsupported("config: use_flow_sigmas beside use_exponential_sigmas or use_beta_sigmas"));
  }

 private:
  Result<Layout> lay_out(const StepPlan& plan) override {
    REDLINE_TRY(check(plan));
    samples_.clear();
    const auto all = static_cast<double>(training_.size());
    std::vector<double> timesteps, sigmas;
    double last = 0;
    if (curve_) {
      lay_out_curve(plan.steps, curve_.kind == SigmaCurve::kKarras, timesteps, sigmas);
      for (size_t i = 0; uses_flow_sigmas_ && i < sigmas.size(); ++i) {
        sigmas[i] /= sigmas[i] + 1;
        timesteps[i] = sigmas[i] * all;
      }
      last = sigmas.back();
    } else if (uses_flow_sigmas_) {
      REDLINE_ASSIGN(sigmas, flow_sigmas(plan));
      for (double sigma : sigmas) timesteps.push_back(sigma * all);
      last = sigmas.back();
    } else {
      timesteps = spacing_.timesteps(plan.steps, training_.size(), training_.size(), 1, true);
      for (double t : timesteps) sigmas.push_back(training_.sigma_at(t));
      last = training_.sigmas().front();
    }
    Layout layout = layout_of(timesteps, sigmas, ends_at_least_ ? last : 0);
    if (!uses_flow_sigmas_) REDLINE_TRY(training_.expect_within(layout.timesteps));
    return layout;
  }

  Result<std::vector<double>> flow_sigmas(const StepPlan& plan) const {
    std::vector<double> sigmas = linspace(1, 1 / static_cast<double>(training_.size()), plan.steps + 1);
    sigmas.pop_back();
    double mu = 0;
    if (dynamic_.enabled) {
      REDLINE_ASSIGN(mu, dynamic_.mu(plan.image_tokens));
    }
    const double weight = dynamic_.is_linear ? mu : std::exp(mu);
    for (double& sigma : sigmas)
      sigma = dynamic_.enabled ? weight / (weight + (1 / sigma - 1))
                               : flow_shift_ * sigma / (1 + (flow_shift_ - 1) * sigma);
    if (terminal_ > 0) {
      const double scale = (1 - sigmas.back()) / (1 - terminal_);
      if (scale > 0)
        for (double& sigma : sigmas) sigma = 1 - (1 - sigma) / scale;
    }
    constexpr double kEpsilon = 1e-6;  // at sigma 1 lambda is infinite
    if (std::abs(sigmas.front() - 1) < kEpsilon) sigmas.front() -= kEpsilon;
    return sigmas;
  }

  // Coefficients of a step from level s0 to level t: of x, of the predicted sample m0 at s0, and of the differences to
  // m0.
  struct Coefficients {
    float keep, take, scale;  ///< x' = keep x - take m0 - scale (sum of rho_k D_k)
    float hh, phi_1;
  };
  Coefficients coefficients(const At& s0, const At& t) const {
    const float hh = s0.lambda - t.lambda, phi_1 = std::expm1(hh);
    return {t.sigma / s0.sigma, t.alpha * phi_1, t.alpha * (is_bh1_ ? hh : phi_1), hh, phi_1};
  }
  // Computes rho of the corrector of order 2 from [[1, 1], [ratio, 1]] rho = b, by elimination with partial pivoting.
  void solve_corrector(const Coefficients& c, float ratio, float rho[2]) const {
    const float scale = is_bh1_ ? c.hh : c.phi_1;
    const float phi_2 = c.phi_1 / c.hh - 1, phi_3 = phi_2 / c.hh - 0.5f;
    const float b[2] = {phi_2 / scale, phi_3 * 2 / scale};
    if (std::abs(ratio) <= 1) {
      rho[1] = (b[1] - ratio * b[0]) / (1 - ratio);
      rho[0] = b[0] - rho[1];
    } else {
      const float factor = 1 / ratio;
      rho[1] = (b[0] - factor * b[1]) / (1 - factor);
      rho[0] = (b[1] - rho[1]) / ratio;
    }
  }

  void advance(const Step& s, NoiseSource&) override {
    const size_t size = s.x.size(), steps = layout().timesteps.size();
    const At here = at(s.index), next = at(s.index + 1);
    const float sigma = layout().sigmas[s.index];
    std::vector<float> now(size);
    for (size_t i = 0; i < size; ++i) now[i] = original_sample(here, sigma, s.x[i], s.output[i]);

    const bool corrects = s.taken > 0 && std::find(uncorrected_.begin(), uncorrected_.end(),
                                                   static_cast<int64_t>(s.index) - 1) == uncorrected_.end();
    if (corrects) {
      const At before = at(s.index - 1);
      const Coefficients c = coefficients(before, here);
      const bool second = last_order_ == 2;
      float rho[2] = {0, 0.5f}, ratio = 1;
      if (second) {
        ratio = (at(s.index - 2).lambda - before.lambda) / (here.lambda - before.lambda);
        solve_corrector(c, ratio, rho);
      }
      const std::vector<float>& m0 = samples_.back();
      for (size_t i = 0; i < size; ++i) {
        float sum = rho[1] * (now[i] - m0[i]);
        if (second) sum = rho[0] * ((samples_[samples_.size() - 2][i] - m0[i]) / ratio) + sum;
        s.x[i] = c.keep * last_x_[i] - c.take * m0[i] - c.scale * sum;
      }
    }
    if (samples_.size() == order_) std::rotate(samples_.begin(), samples_.begin() + 1, samples_.end());
    else samples_.emplace_back();
    samples_.back().swap(now);
    last_x_.assign(s.x.begin(), s.x.end());

    const size_t allowed = lowers_order_at_end_ ? std::min(order_, steps - s.index) : order_;
    last_order_ = std::min(allowed, s.taken + 1);
    const Coefficients c = coefficients(here, next);
    const std::vector<float>& m0 = samples_.back();
    if (last_order_ == 2) {
      const std::vector<float>& m1 = samples_[samples_.size() - 2];
      const float ratio = (at(s.index - 1).lambda - here.lambda) / (next.lambda - here.lambda);
      for (size_t i = 0; i < size; ++i)
        s.x[i] = c.keep * s.x[i] - c.take * m0[i] - c.scale * (0.5f * ((m1[i] - m0[i]) / ratio));
    } else {
      for (size_t i = 0; i < size; ++i) s.x[i] = c.keep * s.x[i] - c.take * m0[i];
    }
  }

  bool is_bh1_;
  double terminal_;
  std::vector<int64_t> uncorrected_;
  std::vector<std::vector<float>> samples_;  ///< up to order_ predicted samples, oldest first
  std::vector<float> last_x_;                ///< before the last prediction
  size_t last_order_ = 1;
};

}  // namespace

extern const SolverRow kUnipcSolver = {
    .name = "unipc",
    .class_name = "UniPCMultistepScheduler",
    .web_ui_name = "UniPC",
    .comfyui_name = "uni_pc",
    .models = SolverModels::kBoth,
    .make = make_solver<UniPc>,
};

}  // namespace redline
