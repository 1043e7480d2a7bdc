#include "diffusion/cached_denoiser.h"

#include <algorithm>

namespace redline {
namespace {

enum Part : size_t { kProbePart, kBodyPart, kHeadPart };

}  // namespace

Result<CachedDenoiser> CachedDenoiser::make(Denoiser& denoiser, StepCache cache, BlockSplit blocks) {
  const RulePlan& plan = cache.plan();
  const bool skips = plan.decision != Decision::kNever, needs_parts = skips && !cache.skips_probe();
  const std::string& rule = plan.description;
  if (needs_parts && !denoiser.has_parts())
    return unsupported(
        "step cache: {} skips a part of the network, and this one is all of a piece; take redline, "
        "easycache, or a mask with span=network",
        rule);
  if (needs_parts && plan.tail_blocks != blocks.tail)
    return invalid_argument(
        "step cache: {} wants {} blocks behind the skipped ones, the engine was opened with {}; open it with "
        "tail_blocks "
        "{}",
        rule, plan.tail_blocks, blocks.tail, plan.tail_blocks);
  if (needs_parts && plan.probe_blocks > 0 && plan.probe_blocks != blocks.probe)
    return invalid_argument(
        "step cache: {} looks at {} blocks, the engine was opened with {} in its probe; open it with "
        "probe_blocks {}",
        rule, plan.probe_blocks, blocks.probe, plan.probe_blocks);
  CachedDenoiser cached(denoiser, std::move(cache));
  if (denoiser.has_parts()) cached.head_reads_text_ = denoiser.networks()[kHeadPart]->has_input("text");
  if (needs_parts && plan.probe_blocks == 0 && blocks.probe > 0)
    cached.warnings_.push_back(
        fmt::format("step cache: {} needs no block on skipped steps, the engine was opened with {} in its "
                    "probe, which run; open it with probe_blocks 0",
                    rule, blocks.probe));
  return cached;
}

void CachedDenoiser::count(size_t part, size_t rows) {
  executed_flops_ += denoiser_->flops(part, static_cast<int64_t>(rows));
}

void CachedDenoiser::set_spans(CacheRow& row, int64_t index) const {
  row.probed = denoiser_->state("image", index);
  row.embedded = denoiser_->state("embedded", index);
  if (row.embedded.empty()) row.embedded = row.probed;  // a probe without blocks
  row.probed_text = denoiser_->state("text", index);
  row.modulated = denoiser_->state("modulated", index);
  row.body = denoiser_->state("body.image", index);
  if (head_reads_text_) row.body_text = denoiser_->state("body.text", index);
}

Status CachedDenoiser::evaluate(std::span<const int64_t> rows, std::span<const float> x, double timestep,
                                const StepPoint& at, std::span<float> out) {
  const int64_t pictures = denoiser_->batch().pictures;
  const auto n = static_cast<size_t>(denoiser_->batch().layout.elements());
  if (at.step != step_) {
    step_ = at.step;
    computed_.assign(static_cast<size_t>(pictures), false);
  }
  const size_t parts = denoiser_->has_parts() ? 3 : 1;
  for (size_t part = 0; part < parts; ++part) full_flops_ += denoiser_->flops(part, std::ssize(rows));

  std::vector<CacheRow> cached;
  for (const int64_t index : rows) {
    CacheRow row;
    row.request = static_cast<uint64_t>(index % pictures);
    row.branch = index / pictures;
    row.at = at;
    row.latents = x.subspan(static_cast<size_t>(index % pictures) * n, n);
    row.velocity = out.subspan(static_cast<size_t>(index) * n, n);
    cached.push_back(row);
  }
  const auto with = [&](auto... actions) {
    std::vector<int64_t> wanted;
    for (size_t i = 0; i < cached.size(); ++i)
      if (((cached[i].action == actions) || ...)) wanted.push_back(rows[i]);
    return wanted;
  };
  REDLINE_TRY(cache_.before(cached));
  const std::vector<int64_t> probed = with(CacheAction::kProbe);
  if (!probed.empty()) {
    count(kProbePart, probed.size());
    if (parts == 1) REDLINE_TRY(denoiser_->evaluate(probed, x, timestep, out));
    else REDLINE_TRY(denoiser_->run_probe(probed, x, timestep));
  }
  if (parts > 1)
    for (size_t i = 0; i < cached.size(); ++i)
      if (cached[i].action == CacheAction::kProbe) set_spans(cached[i], rows[i]);
  REDLINE_TRY(cache_.after_probe(cached));
  const std::vector<int64_t> computed = with(CacheAction::kCompute),
                             finished = with(CacheAction::kCompute, CacheAction::kSkipBody);
  for (const int64_t index : computed) computed_[static_cast<size_t>(index % pictures)] = true;
  if (parts > 1 && !finished.empty()) {
    if (!computed.empty()) {
      count(kBodyPart, computed.size());
      REDLINE_TRY(denoiser_->run_body(computed));
    }
    count(kHeadPart, finished.size());
    REDLINE_TRY(denoiser_->run_head(finished, out));
    // The first run of the body made the place of its output.
    for (size_t i = 0; i < cached.size(); ++i)
      if (cached[i].action == CacheAction::kCompute) set_spans(cached[i], rows[i]);
  }
  return cache_.after_head(cached);
}

int64_t CachedDenoiser::computed_pictures() const { return std::count(computed_.begin(), computed_.end(), true); }

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
