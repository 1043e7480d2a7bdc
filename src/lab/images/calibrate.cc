// Records uncached trajectories, plans a mask from them, and improves it by hill climbing on the engine.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "diffusion/image_request.h"
#include "diffusion/step_cache/rule.h"
#include "lab/images/calibrate.h"
#include "lab/images/compare.h"
#include "lab/images/image_metrics.h"
#include "lab/images/mask_search.h"

namespace redline::lab {
namespace {

// Maximum distance that hill climbing moves a step at once (BudCache's neighbourhood).
constexpr int64_t kReach = 3;
// The plan keeps a table of steps^2 * budget.
constexpr int64_t kMaxSteps = 200;

class Calibration {
 public:
  explicit Calibration(const CalibrateOptions& options) : options_(options) {}

  Result<CalibrateReport> run() {
    const CalibrateOptions& o = options_;
    if (o.prompts.empty()) return invalid_argument("calibrate: there is no prompt");
    if (o.evaluations < 1) return invalid_argument("calibrate: evaluations {} is below 1", o.evaluations);
    REDLINE_ASSIGN(engine_, ImageEngine::open(o.model, o.engine));
    ImageRequest& r = report_.request;
    r = with_defaults(o.request, engine_->defaults());
    if (r.num_inference_steps > kMaxSteps)
      return unsupported("calibrate: {} steps; masks are searched for up to {}", r.num_inference_steps, kMaxSteps);
    report_.prompts = std::ssize(o.prompts);
    budgets_ = o.budgets;
    if (budgets_.empty())
      for (const int64_t budget : {r.num_inference_steps / 4, r.num_inference_steps * 3 / 8, r.num_inference_steps / 2})
        if (budget >= 2 && (budgets_.empty() || budget != budgets_.back())) budgets_.push_back(budget);
    if (budgets_.empty())
      return invalid_argument("calibrate: {} steps are too few to leave some out", r.num_inference_steps);
    for (const int64_t budget : budgets_)
      if (budget < 2 || budget >= r.num_inference_steps)
        return invalid_argument("calibrate: a budget of {} of {} steps; it can be 2 .. {}", budget,
                                r.num_inference_steps, r.num_inference_steps - 1);
    REDLINE_TRY(record());
    const MaskCosts costs(trajectories_);
    for (const int64_t budget : budgets_) {
      Result<CalibratedBudget> found = calibrate(budget, costs);
      if (!found.ok() && report_.budgets.empty()) return found.status();
      if (!found.ok()) {
        report_.failure = found.status();
        break;
      }
      report_.budgets.push_back(std::move(found).value());
      ++done_;
    }
    return std::move(report_);
  }

 private:
  Result<CalibratedBudget> calibrate(int64_t budget, const MaskCosts& costs) {
    const CalibrateOptions& o = options_;
    const ImageRequest& r = report_.request;
    const auto cost = [&](int64_t i, int64_t j, int64_t k) { return costs.cost(i, j, k); };
    CalibratedBudget found;
    std::vector<int64_t> power;
    const std::vector<uint8_t> mask = power_mask(r.num_inference_steps, budget);
    for (int64_t step = 0; step < r.num_inference_steps; ++step)
      if (mask[step] != 0) power.push_back(step);
    REDLINE_ASSIGN(const std::vector<int64_t> planned, plan_mask(r.num_inference_steps, budget, 1, cost));
    work_ = fmt::format("{} of {} steps", budget, r.num_inference_steps);
    tried_ = 0;
    REDLINE_ASSIGN(const double power_error, error_of(power));
    REDLINE_ASSIGN(const double planned_error, error_of(planned));
    found.power_db = -power_error;
    found.planned_db = -planned_error;
    REDLINE_ASSIGN(const ClimbResult climbed,
                   climb_mask(r.num_inference_steps, power_error < planned_error ? power : planned, kReach,
                              o.evaluations, [&](const std::vector<int64_t>& computed) { return error_of(computed); }));
    found.computed = climbed.computed;
    found.found_db = -climbed.error;
    found.evaluations = climbed.evaluations;
    return found;
  }

  /// Generates one image. `share`: fraction of the work that is done. Returns cancelled if on_progress ends the work,
  /// between two images or two steps.
  Result<ImageResult> draw(size_t prompt, const std::string& rule, double share,
                           const std::function<void(const ImageProgress&)>& on_step) {
    const std::string work = work_.empty() ? "uncached runs" : work_;
    const auto goes_on = [&] { return !options_.on_progress || options_.on_progress(work, share); };
    const auto stopped = [&] { return cancelled("calibrate: stopped{}", work_.empty() ? "" : " at " + work_); };
    if (!goes_on()) return stopped();
    ImageRequest request = report_.request;
    request.prompts = {options_.prompts[prompt]};
    request.seed += prompt;
    request.cache = rule;
    Result<ImageResult> result = engine_->generate(request, [&](const ImageProgress& p) {
      if (on_step) on_step(p);
      return goes_on();
    });
    if (result.status().code() == Code::cancelled) return stopped();
    return result;
  }

  /// Runs every prompt without a cache, and keeps its image and its trajectory.
  Status record() {
    for (size_t i = 0; i < options_.prompts.size(); ++i) {
      Trajectory trajectory;
      bool is_euler = true;
      REDLINE_ASSIGN(ImageResult result, draw(i, "none", 0, [&](const ImageProgress& p) {
                       is_euler = is_euler && p.step_size != 0;
                       trajectory.u.push_back(u_of_sigma(p.sigma));
                       trajectory.step_sizes.push_back(p.step_size);
                       trajectory.velocity.emplace_back(p.output, p.output + p.latents->data.size());
                     }));
      if (!is_euler || std::ssize(trajectory.velocity) != report_.request.num_inference_steps)
        return unsupported("calibrate: the solver is not an Euler step; masks are searched for flow-euler and euler");
      images_.push_back(std::move(result.images[0]));
      trajectories_.push_back(std::move(trajectory));
    }
    return {};
  }

  /// Returns minus the mean PSNR. PSNR is a logarithm, so its mean is not dominated by one failing prompt.
  Result<double> error_of(const std::vector<int64_t>& computed) {
    if (const auto found = known_.find(computed); found != known_.end()) return found->second;
    double sum = 0;
    for (size_t i = 0; i < options_.prompts.size(); ++i) {
      const double of_budget =
          std::min(1.0, (tried_ + static_cast<double>(i) / static_cast<double>(options_.prompts.size())) /
                            static_cast<double>(options_.evaluations));
      const double share = (done_ + of_budget) / static_cast<double>(budgets_.size());
      REDLINE_ASSIGN(const ImageResult result,
                     draw(i, fmt::format("redline:steps={}", fmt::join(computed, "+")), share, {}));
      REDLINE_ASSIGN(const double decibels, psnr(result.images[0], images_[i]));
      sum += decibels;
    }
    ++tried_;
    return known_[computed] = -sum / static_cast<double>(options_.prompts.size());
  }

  const CalibrateOptions& options_;
  std::unique_ptr<ImageEngine> engine_;
  CalibrateReport report_;
  std::vector<RgbImage> images_;
  std::vector<Trajectory> trajectories_;
  std::vector<int64_t> budgets_;
  std::string work_;
  double tried_ = 0;  ///< number of masks of this budget that were tried
  std::map<std::vector<int64_t>, double> known_;
  double done_ = 0;
};

}  // namespace

Result<CalibrateReport> calibrate_images(const CalibrateOptions& options) { return Calibration(options).run(); }

}  // namespace redline::lab
