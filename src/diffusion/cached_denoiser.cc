#include "diffusion/cached_denoiser.h"

#include <algorithm>

namespace redline {
namespace {

enum Part : size_t { kFrontPart, kMiddlePart, kTailPart };

}  // namespace

Result<CachedDenoiser> CachedDenoiser::make(Denoiser& denoiser, StepCache cache, BlockSplit blocks) {
  const RulePlan plan = cache.plan();  // a copy: `cache` is moved from below
  const bool skips = plan.decision != Decision::kNever, needs_parts = skips && !cache.skips_front();
  const std::string& rule = plan.description;
  if (needs_parts && !denoiser.has_parts())
    return unsupported(
        "step cache: {} skips a part of the network, and this network is not divided into parts; use redline, "
        "easycache, or a mask with span=output",
        rule);
  if (needs_parts && plan.tail_blocks != blocks.tail)
    return invalid_argument(
        "step cache: {} needs {} blocks after the skipped ones, the engine was opened with {}; open it with "
        "tail_blocks "
        "{}",
        rule, plan.tail_blocks, blocks.tail, plan.tail_blocks);
  if (needs_parts && plan.front_blocks > 0 && plan.front_blocks != blocks.front)
    return invalid_argument(
        "step cache: {} needs {} blocks before its decision, the engine was opened with {}; open it with "
        "front_blocks {}",
        rule, plan.front_blocks, blocks.front, plan.front_blocks);
  CachedDenoiser cached(denoiser, std::move(cache));
  if (needs_parts && plan.front_blocks == 0 && blocks.front > 0)
    cached.warnings_.push_back(
        fmt::format("step cache: {} needs no block on skipped steps, the engine was opened with {} before its "
                    "decision, which run; open it with front_blocks 0",
                    rule, blocks.front));
  return cached;
}

void CachedDenoiser::count(size_t part, size_t rows) {
  executed_flops_ += denoiser_->flops(part, static_cast<int64_t>(rows));
}

// Sets the views of a row that the rule reads. The others stay empty, because forecasts are written to the views of a
// row.
void CachedDenoiser::set_views(CacheRow& row, int64_t index) const {
  const RowReads& reads = cache_.reads();
  if (reads.front_image) row.front_image = denoiser_->state(DenoiserState::kFrontImage, index);
  if (reads.embedded) {
    row.embedded = denoiser_->state(DenoiserState::kEmbedded, index);
    // The front has no blocks.
    if (row.embedded.empty()) row.embedded = denoiser_->state(DenoiserState::kFrontImage, index);
  }
  if (reads.modulated) row.modulated = denoiser_->state(DenoiserState::kModulated, index);
  if (reads.middle_image) row.middle_image = denoiser_->state(DenoiserState::kMiddleImage, index);
  if (reads.text) row.middle_text = denoiser_->state(DenoiserState::kMiddleText, index);
  if (!row.middle_text.empty()) row.front_text = denoiser_->state(DenoiserState::kFrontText, index);
}

Status CachedDenoiser::evaluate(std::span<const int64_t> rows, std::span<const float> x, double timestep,
                                const StepPoint& at, std::span<float> out) {
  const int64_t images = denoiser_->batch().images;
  const auto n = static_cast<size_t>(denoiser_->batch().latents.elements());
  if (at.step != step_) {
    step_ = at.step;
    computed_.assign(static_cast<size_t>(images), false);
  }
  const size_t parts = denoiser_->has_parts() ? 3 : 1;
  for (size_t part = 0; part < parts; ++part) full_flops_ += denoiser_->flops(part, std::ssize(rows));

  std::vector<CacheRow> cached;
  for (const int64_t index : rows) {
    CacheRow row;
    row.request = static_cast<uint64_t>(index % images);
    row.branch = index / images;
    row.at = at;
    row.latents = x.subspan(static_cast<size_t>(index % images) * n, n);
    row.model_output = out.subspan(static_cast<size_t>(index) * n, n);
    cached.push_back(row);
  }
  const auto with = [&](auto... actions) {
    std::vector<int64_t> wanted;
    for (size_t i = 0; i < cached.size(); ++i)
      if (((cached[i].action == actions) || ...)) wanted.push_back(rows[i]);
    return wanted;
  };
  REDLINE_TRY(cache_.before(cached));
  const std::vector<int64_t> front_image = with(CacheAction::kRunFront);
  if (!front_image.empty()) {
    count(kFrontPart, front_image.size());
    if (parts == 1) REDLINE_TRY(denoiser_->evaluate(front_image, x, timestep, out));
    else REDLINE_TRY(denoiser_->run_front(front_image, x, timestep));
  }
  if (parts > 1)
    for (size_t i = 0; i < cached.size(); ++i)
      if (cached[i].action == CacheAction::kRunFront) set_views(cached[i], rows[i]);
  REDLINE_TRY(cache_.after_front(cached));
  const std::vector<int64_t> computed = with(CacheAction::kCompute),
                             finished = with(CacheAction::kCompute, CacheAction::kSkipMiddle);
  for (const int64_t index : computed) computed_[static_cast<size_t>(index % images)] = true;
  if (parts > 1 && !finished.empty()) {
    if (!computed.empty()) {
      count(kMiddlePart, computed.size());
      REDLINE_TRY(denoiser_->run_middle(computed));
    }
    count(kTailPart, finished.size());
    REDLINE_TRY(denoiser_->run_tail(finished, out));
    // The first run of the middle has allocated its output.
    for (size_t i = 0; i < cached.size(); ++i)
      if (cached[i].action == CacheAction::kCompute) set_views(cached[i], rows[i]);
  }
  return cache_.after_tail(cached);
}

int64_t CachedDenoiser::computed_images() const { return std::count(computed_.begin(), computed_.end(), true); }

StepPoint step_point(const Solver& solver, int64_t index) {
  const std::span<const float> sigmas = solver.sigmas();
  const auto share = [&](double sigma) { return solver.is_flow() ? sigma : sigma / (1 + sigma); };
  StepPoint at;
  at.step = index;
  at.steps = solver.num_steps();
  at.sigma = share(sigmas[static_cast<size_t>(index)]);
  at.next_sigma = share(sigmas[static_cast<size_t>(index) + 1]);
  at.step_size = solver.step_size(static_cast<int>(index));
  return at;
}

}  // namespace redline
