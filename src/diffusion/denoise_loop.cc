#include "diffusion/denoise_loop.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/elapsed.h"
#include "diffusion/calibration_file.h"
#include "diffusion/denoiser_batch.h"

namespace redline {
namespace {

using Clock = std::chrono::steady_clock;
ImageProgress progress_of(const ImageResult& result, int step, int steps, const StepPoint& at) {
  ImageProgress progress;
  progress.step = step;
  progress.steps = steps;
  progress.step_ms = result.step_ms.back();
  progress.computed = result.computed.back();
  progress.sigma = at.sigma;
  progress.next_sigma = at.next_sigma;
  progress.step_size = at.step_size;
  return progress;
}

/// Warns of an image of which the step cache has computed less than a quarter: below that, even the best rule of
/// docs/step_cache.md gives another image for hard prompts.
void warn_of_forecasts(ImageResult& result) {
  constexpr int64_t kMinSteps = 3, kShare = 4;  // minimum steps for a warning, and the inverse of the share
  const auto steps = std::ssize(result.computed);
  const int64_t computed =
      std::count_if(result.computed.begin(), result.computed.end(), [](int64_t n) { return n > 0; });
  const int64_t enough = std::min(steps, std::max(kMinSteps, (steps + kShare - 1) / kShare));
  if (computed >= enough) return;
  result.warnings.push_back(
      fmt::format("the step cache computed {} of {} steps and forecast the others: the image differs visibly from one "
                  "of {} computed steps; steps_budget {} or a larger quality comes closer",
                  computed, steps, steps, enough));
}

}  // namespace

Status DenoiseLoop::make_solver() {
  const ImageRequest& r = *in_.request;
  nlohmann::json config = p_.scheduler_config;
  if (!r.solver.empty()) {
    REDLINE_ASSIGN(config, with_solver(std::move(config), r.solver));
  }
  REDLINE_ASSIGN(solver_, Solver::make(config));
  solver_name_ = solver_name(config);
  StepPlan plan;
  plan.steps = static_cast<int>(r.num_inference_steps);
  plan.image_tokens = in_.latents.tokens();
  plan.strength = in_.init_latents.empty() ? 1 : r.strength;
  plan.even_sigmas = p_.row->even_sigmas;
  return solver_->set_steps(plan);
}

void DenoiseLoop::init_latents() {
  std::vector<float>& x = latents_;
  x.resize(in_.noise.size());
  // As in diffusers: inpainting at full strength starts from pure noise.
  const bool from_noise = in_.init_latents.empty() || (!in_.mask.empty() && in_.request->strength == 1);
  if (!from_noise) return solver_->add_noise(0, in_.init_latents, in_.noise, x);
  std::transform(in_.noise.begin(), in_.noise.end(), x.begin(),
                 [&](float v) { return v * solver_->init_noise_sigma(); });
}

Status DenoiseLoop::begin_denoiser() {
  REDLINE_ASSIGN(DenoiserBatch batch, make_denoiser_batch(in_.latents, in_.images, in_.request->guidance_scale,
                                                          in_.positive, in_.guided() ? &in_.negative : nullptr));
  rows_.resize(static_cast<size_t>(batch.rows));
  std::iota(rows_.begin(), rows_.end(), 0);
  scaled_.resize(latents_.size());
  outputs_.resize(static_cast<size_t>(in_.latents.elements() * batch.rows));
  batch.timesteps.assign(solver_->timesteps().begin(), solver_->timesteps().end());
  batch.mask_latents = std::move(in_.mask_latents);
  return p_.denoiser->begin(std::move(batch));
}

Result<CachedDenoiser> DenoiseLoop::make_cached_denoiser() const {
  const ImageRequest& r = *in_.request;
  const ImageOptions& options = p_.options;
  REDLINE_ASSIGN(StepCache cache, StepCache::make({r.cache, r.quality, r.steps_budget, p_.masks}));
  if (!options.step_cache_file.empty())
    REDLINE_TRY(require_mask(p_.masks, solver_->num_steps(), cache.plan().budget).within(options.step_cache_file));
  return CachedDenoiser::make(*p_.denoiser, std::move(cache), {options.front_blocks, options.tail_blocks});
}

bool DenoiseLoop::is_guided(int index) const {
  const double share = static_cast<double>(index) / solver_->num_steps();
  return in_.guided() && share >= in_.request->guidance_begin && share < in_.request->guidance_end;
}

// Computes the model output of the branches that the step needs.
Status DenoiseLoop::evaluate(CachedDenoiser& denoiser, int index, const StepPoint& at) {
  const auto images = static_cast<size_t>(in_.images);
  const std::span<const int64_t> all = rows_, positive = all.first(images);
  const double timestep = solver_->timesteps()[static_cast<size_t>(index)];
  solver_->scale_input(index, latents_, scaled_);
  if (!is_guided(index)) return denoiser.evaluate(positive, scaled_, timestep, at, outputs_);
  if (!in_.request->split_guidance) return denoiser.evaluate(all, scaled_, timestep, at, outputs_);
  REDLINE_TRY(denoiser.evaluate(positive, scaled_, timestep, at, outputs_));
  return denoiser.evaluate(all.subspan(images), scaled_, timestep, at, outputs_);
}

void DenoiseLoop::guide(std::span<float> output) const {
  const std::span<const float> negative = std::span(outputs_).subspan(output.size());
  const auto scale = static_cast<float>(in_.guidance_scale);
  for (size_t k = 0; k < output.size(); ++k) output[k] = negative[k] + scale * (output[k] - negative[k]);
}

// Inpainting by blending: outside the mask the latents are those of the image, at the noise level that was reached.
void DenoiseLoop::keep_unmasked(int next) {
  if (in_.mask.empty()) return;
  std::vector<float>& x = latents_;
  renoised_.resize(x.size());
  solver_->add_noise(next, in_.init_latents, in_.noise, renoised_);
  for (size_t k = 0; k < x.size(); ++k) x[k] = in_.mask[k] * x[k] + (1 - in_.mask[k]) * renoised_[k];
}

// Returns the latents in the order of diffusers.
FloatArray DenoiseLoop::planes() const {
  const LatentShape& shape = in_.latents;
  return {shape.planes(in_.images, p_.vae.model().has_frames()), unpacked_images(shape, latents_)};
}

// The VAE decodes latents that are reduced by averaging squares.
Result<RgbImage> DenoiseLoop::preview(int index, int64_t image, int64_t max_side) const {
  if (image < 0 || image >= in_.images)
    return invalid_argument("there is no image {} in a batch of {}", image, in_.images);
  const LatentShape& shape = in_.latents;
  const auto n = static_cast<size_t>(shape.elements()), first = static_cast<size_t>(image) * n;
  std::vector<float> clean(n);
  solver_->predict_clean(index, std::span(before_).subspan(first, n), std::span(outputs_).subspan(first, n), clean);
  const int64_t side = std::max<int64_t>(1, max_side / p_.vae.scale());
  LatentShape small;
  const std::vector<float> means = shrink_latents(unpacked_images(shape, clean), shape,
                                                  (std::max(shape.height, shape.width) + side - 1) / side, small);
  REDLINE_ASSIGN(std::vector<RgbImage> frames, p_.vae.decode(means, small));
  return std::move(frames.front());
}

Status DenoiseLoop::run(const std::function<bool(const ImageProgress&)>& on_step, ImageResult& result) {
  const Clock::time_point begin = Clock::now();
  REDLINE_TRY(make_solver());
  init_latents();
  REDLINE_TRY(begin_denoiser());
  REDLINE_ASSIGN(CachedDenoiser denoiser, make_cached_denoiser());
  result.warnings.insert(result.warnings.end(), denoiser.warnings().begin(), denoiser.warnings().end());
  const int steps = solver_->num_steps();
  RowNoise noise(in_.latents, *in_.generator);
  for (int i = 0; i < steps; ++i) {
    const Clock::time_point step_begin = Clock::now();
    const StepPoint at = step_point(*solver_, i);
    REDLINE_TRY(evaluate(denoiser, i, at));
    const std::span<float> output = std::span(outputs_).first(latents_.size());
    if (is_guided(i)) guide(output);
    if (!all_finite(output))
      return internal("step {} of {}: the model's output is not finite; try --dtype f32", i + 1, steps);
    if (on_step) before_ = latents_;
    REDLINE_TRY(solver_->step(i, output, latents_, noise));
    keep_unmasked(i + 1);
    result.step_ms.push_back(ms_since(step_begin));
    result.computed.push_back(denoiser.computed_images());
    if (!on_step) continue;
    const FloatArray latents = planes();
    const std::vector<float> output_planes = unpacked_images(in_.latents, output);
    ImageProgress progress = progress_of(result, i + 1, steps, at);
    progress.latents = &latents;
    progress.output = output_planes.data();
    progress.preview = [this, i](int64_t image, int64_t max_side) { return preview(i, image, max_side); };
    if (!on_step(progress)) return cancelled("stopped after step {} of {}", i + 1, steps);
  }
  warn_of_forecasts(result);
  result.solver = solver_name_;
  result.cache = denoiser.cache().plan().description;
  result.executed_share = denoiser.executed_share();
  result.operations = denoiser.executed_operations();
  result.latents = planes();
  result.loop_ms = ms_since(begin);
  return {};
}

}  // namespace redline
