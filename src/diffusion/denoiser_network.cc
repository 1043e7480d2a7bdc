#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "diffusion/image_network.h"
#include "diffusion/network_io.h"

namespace redline {

Result<std::unique_ptr<ImageNetwork>> DenoiserNetwork::make(DenoiserModel model, std::shared_ptr<Runtime> runtime,
                                                            const ExecutableOptions& network,
                                                            const NetworkOptions& options) {
  std::unique_ptr<DenoiserNetwork> made(new DenoiserNetwork());
  REDLINE_ASSIGN(made->denoiser_,
                 Denoiser::make(std::move(model), network, options.max_adapter_rank, resources_of(*runtime)));
  made->runtime_ = std::move(runtime);
  made->options_ = options;
  made->options_.runtime.reset();
  return std::unique_ptr<ImageNetwork>(std::move(made));
}

Status DenoiserNetwork::read_latents(const NamedTensor& latents, Call& call) const {
  const DenoiserModel& model = denoiser_->model();
  DenoiserBatch& b = call.batch;
  const int64_t channels = model.is_inpainting() ? model.in_channels : model.latent_channels;
  const int64_t rows = latents.shape[0], height = latents.shape[2], width = latents.shape[3];
  const auto is_side = [&](int64_t side) {
    return side >= 1 && side <= options_.max_latent_side && side % model.patch == 0;
  };
  if (rows < 1 || rows > options_.max_batch)
    return invalid_argument("\"latents\" has {} rows, max_batch is {}", rows, options_.max_batch);
  if (latents.shape[1] != channels || !is_side(height) || !is_side(width))
    return invalid_argument(
        "\"latents\" is [{}]; the network takes {} channels and sides that are multiples of {}, at most "
        "max_latent_side "
        "{}",
        fmt::join(latents.shape, ", "), channels, model.patch, options_.max_latent_side);
  b.latents = {model.latent_channels, height, width, model.patch};
  const std::span<const float> given = floats_of(latents);
  const size_t half = given.size() / 2;
  call.branches = rows % 2 == 0 && std::equal(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(half),
                                              given.begin() + static_cast<std::ptrdiff_t>(half))
                      ? 2
                      : 1;
  b.rows = rows;
  b.images = rows / call.branches;
  // If the call has two equal halves, the first half has the latents of all images.
  const int64_t plane = height * width, all = channels * plane, own = model.latent_channels * plane;
  const LatentShape mask = {channels - model.latent_channels, height, width};
  call.x.resize(static_cast<size_t>(b.images * own));
  b.mask_latents.resize(static_cast<size_t>(b.images * mask.elements()));
  for (int64_t i = 0; i < b.images; ++i) {
    pack_latents(b.latents, given.data() + i * all, call.x.data() + i * own);
    pack_latents(mask, given.data() + i * all + own, b.mask_latents.data() + i * mask.elements());
  }
  return {};
}

// The denoiser checks the sizes when it begins.
Status DenoiserNetwork::read_conditions(std::span<const NamedTensor> inputs, Call& call) const {
  REDLINE_ASSIGN(const NamedTensor* text, take_input(inputs, "text", 3));
  call.batch.text_tokens = text->shape[1];
  if (text->shape[1] < 1 || text->shape[1] > options_.max_text_tokens)
    return invalid_argument("\"text\" has {} tokens, max_text_tokens is {}", text->shape[1], options_.max_text_tokens);
  for (const NamedTensor& input : inputs) {
    if (input.name == "latents" || input.name == "timestep") continue;
    if (input.shape.empty() || input.shape[0] != call.batch.rows)
      return invalid_argument("\"{}\" is [{}], and there are latents of {} rows", input.name,
                              fmt::join(input.shape, ", "), call.batch.rows);
    const int64_t n = num_elements_of(input) / call.batch.rows;
    const auto gather = [&](const auto* from, auto& to) {
      for (int64_t r = 0; r < call.batch.rows; ++r) {
        const auto* row = from + call.given_row(r) * n;
        to.insert(to.end(), row, row + n);
      }
    };
    if (input.type == TensorType::kI32)
      gather(static_cast<const int32_t*>(input.data), call.batch.integer_conditions[input.name]);
    else gather(static_cast<const float*>(input.data), call.batch.conditions[input.name]);
  }
  for (const int32_t length : call.batch.integer_conditions["key_lengths"])
    if (length < 1 || length > call.batch.text_tokens)
      return invalid_argument("\"key_lengths\" has {}; there are {} tokens of text", length, call.batch.text_tokens);
  return {};
}

Result<DenoiserNetwork::Call> DenoiserNetwork::read_call(std::span<const NamedTensor> inputs,
                                                         const NetworkStep& step) const {
  constexpr std::string_view kInputs[] = {"latents",  "timestep", "text",       "pooled",
                                          "guidance", "time_ids", "key_lengths"};
  REDLINE_TRY(expect_known(inputs, kInputs));
  Call call;
  REDLINE_ASSIGN(const NamedTensor* latents, take_input(inputs, "latents", 4));
  REDLINE_TRY(read_latents(*latents, call));
  REDLINE_TRY(read_conditions(inputs, call));
  call.batch.timesteps = step.timesteps;
  return call;
}

// Returns the first row of the call in the denoiser's batch. A call with the conditions of a context uses its rows, a
// new context is added to the batch, and any other call begins a new batch.
Result<int64_t> DenoiserNetwork::join(const Call& call, const std::string& context) {
  const DenoiserBatch &now = denoiser_->batch(), &given = call.batch;
  bool goes_on = !contexts_.empty() && now.latents == given.latents && now.images == given.images &&
                 now.text_tokens == given.text_tokens && now.timesteps == given.timesteps &&
                 now.mask_latents == given.mask_latents;
  int64_t first = 0;
  const auto is_same = [&](const auto& all, const auto& own) {
    for (const auto& [name, values] : own) {
      const auto at = all.find(name);
      const auto from = first * std::ssize(values) / given.rows;
      if (at == all.end() || std::ssize(at->second) * given.rows != std::ssize(values) * now.rows ||
          !std::equal(values.begin(), values.end(), at->second.begin() + from))
        return false;
    }
    return all.size() == own.size();
  };
  for (size_t i = 0; goes_on && i < contexts_.size(); ++i) {
    if (contexts_[i].name == context) {
      if (contexts_[i].branches == call.branches && is_same(now.conditions, given.conditions) &&
          is_same(now.integer_conditions, given.integer_conditions))
        return first;
      goes_on = false;
    } else {
      first += contexts_[i].branches * now.images;
    }
  }
  DenoiserBatch next = given;
  if (goes_on) {
    next = now;
    next.rows += given.rows;
    const auto append = [](auto& all, const auto& own) {
      for (const auto& [name, values] : own) all[name].insert(all[name].end(), values.begin(), values.end());
    };
    append(next.conditions, given.conditions);
    append(next.integer_conditions, given.integer_conditions);
    if (next.rows > options_.max_batch)
      return invalid_argument("{} rows of latents in {} contexts are more than max_batch {}", next.rows,
                              contexts_.size() + 1, options_.max_batch);
  } else {
    contexts_.clear();
    first = 0;
    REDLINE_TRY(make_cache());
  }
  if (Status begun = denoiser_->begin(std::move(next)); !begun.ok()) {
    contexts_.clear();
    return begun;
  }
  contexts_.push_back({context, call.branches});
  return first;
}

Status DenoiserNetwork::evaluate(const Call& call, std::span<const int64_t> rows, double timestep,
                                 const NetworkStep& step) {
  if (!cached_) return denoiser_->evaluate(rows, call.x, timestep, outputs_);
  if (step.steps < 1 || step.step < 0 || step.step >= step.steps)
    return invalid_argument("step cache: step {} of {}: the cache needs the step of each call, in [0, steps)",
                            step.step, step.steps);
  StepPoint at;
  at.step = step.step;
  at.steps = step.steps;
  at.sigma = step.sigma;
  at.next_sigma = step.next_sigma;
  at.step_size = step.step_size;
  REDLINE_TRY(cached_->evaluate(rows, call.x, timestep, at, outputs_));
  if (step.step < last_step_) computed_.clear();
  if (step.step != last_step_ || computed_.empty()) computed_.push_back(0);
  computed_.back() = cached_->computed_images();
  last_step_ = step.step;
  return {};
}

Status DenoiserNetwork::run(std::span<const NamedTensor> inputs, std::span<const NamedOutput> outputs,
                            const NetworkStep& step) {
  const std::lock_guard lock(mutex_);
  REDLINE_ASSIGN(const Call call, read_call(inputs, step));
  REDLINE_ASSIGN(const NamedTensor* timestep, take_input(inputs, "timestep", 1));
  if (timestep->shape[0] != 1)
    return invalid_argument("\"timestep\" has {} elements; the rows of a call have one timestep", timestep->shape[0]);
  const int64_t n = call.batch.latents.elements(), rows = call.batch.rows;
  for (const NamedOutput& output : outputs) {
    if (output.name != "model_output") return unknown_output(output, "model_output");
    REDLINE_TRY(expect_room(output, rows * n));
  }
  REDLINE_ASSIGN(const int64_t first, join(call, step.context));
  std::vector<int64_t> wanted(static_cast<size_t>(rows));
  std::iota(wanted.begin(), wanted.end(), first);
  outputs_.resize(static_cast<size_t>(denoiser_->batch().rows * n));
  REDLINE_TRY(evaluate(call, wanted, static_cast<double>(floats_of(*timestep)[0]), step));
  for (const NamedOutput& output : outputs)
    for (int64_t r = 0; r < rows; ++r)
      unpack_latents(call.batch.latents, outputs_.data() + (first + r) * n, call.batch.latents.channels,
                     output.data.data() + call.given_row(r) * n);
  return {};
}

Status DenoiserNetwork::set_adapters(std::span<const AdapterFactorPair> pairs) {
  const std::lock_guard lock(mutex_);
  // Values that a step cache has stored were computed with other adapters.
  contexts_.clear();
  return replace_adapters(denoiser_->adapters(), pairs, options_.max_adapter_rank, active_adapters_);
}

Status DenoiserNetwork::make_cache() {
  computed_.clear();
  last_step_ = -1;
  cached_.reset();
  if (rule_.rule.empty() && rule_.quality < 0 && rule_.steps_budget == 0) return {};
  REDLINE_ASSIGN(StepCache cache, StepCache::make(rule_));
  if (cache.plan().decision == Decision::kNever) return {};
  REDLINE_ASSIGN(CachedDenoiser made,
                 CachedDenoiser::make(*denoiser_, std::move(cache), {options_.front_blocks, options_.tail_blocks}));
  cached_.emplace(std::move(made));
  return {};
}

Status DenoiserNetwork::set_cache(const std::string& rule, double quality, int64_t steps_budget) {
  const std::lock_guard lock(mutex_);
  RuleRequest before = std::exchange(rule_, {rule, quality, steps_budget, {}});
  contexts_.clear();
  Status status = make_cache();
  if (!status.ok()) {
    rule_ = std::move(before);
    REDLINE_TRY(make_cache());
  }
  return status;
}

ImageNetwork::Report DenoiserNetwork::report() const {
  const std::lock_guard lock(mutex_);
  const DenoiserModel& model = denoiser_->model();
  Report report;
  report.kind = "denoiser";
  report.family = model.family;
  report.inputs = {"latents", "timestep", "text"};
  if (model.pooled_width > 0) report.inputs.emplace_back("pooled");
  if (model.takes_guidance) report.inputs.emplace_back("guidance");
  if (model.num_time_ids > 0) report.inputs.emplace_back("time_ids");
  if (model.masks_text) report.inputs.emplace_back("key_lengths");
  report.outputs = {"model_output"};
  report.latent_channels = model.latent_channels;
  report.memory = memory_of(denoiser_->networks());
  if (cached_) {
    report.cache = cached_->cache().plan().description;
    report.executed_share = cached_->executed_share();
    report.warnings = cached_->warnings();
  }
  report.computed = computed_;
  return report;
}

}  // namespace redline
