#include "diffusion/image_engine.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/settings.h"
#include "base/topology.h"
#include "diffusion/cached_denoiser.h"
#include "diffusion/calibration_file.h"
#include "diffusion/denoiser_batch.h"
#include "diffusion/image_request.h"
#include "diffusion/picture_encoder.h"
#include "diffusion/vae_tiles.h"
#include "formats/png.h"
#include "models/convert_weights.h"

namespace redline {
namespace {

constexpr int64_t kMostTextTokens = 1024, kUsualSide = 512;

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

Status convert(Checkpoint& checkpoint, ImageType type) {
  REDLINE_TRY(type == ImageType::kF32 ? Status() : round_convolutions(checkpoint));
  if (type == ImageType::kBF16)
    return convert_weights(checkpoint, DType::kBF16, [](const std::string&) { return true; });
  if (type != ImageType::kQ8_0 && type != ImageType::kW8A8) return {};
  // What is small and felt everywhere stays: embedders, modulation, the last projection, where an error moves every token
  // alike.
  return convert_weights(checkpoint, type == ImageType::kW8A8 ? DType::kW8A8 : DType::kQ8_0,
                         [](const std::string& name) {
                           const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
                           const bool in_block = has("blocks.") || has(".block.") || has("mid_block.");
                           return in_block && name.ends_with(".weight") && name.find("norm") == std::string::npos;
                         });
}

Result<AutoencoderModel> build_autoencoder(const Checkpoint& checkpoint) {
  const auto name = checkpoint.config.find("_class_name");
  const std::string own = name != checkpoint.config.end() && name->is_string() ? name->get<std::string>() : "";
  if (own == "AutoencoderTiny") return build_autoencoder_tiny(checkpoint);
  if (own.empty() || own == "AutoencoderKL") return build_autoencoder_kl(checkpoint);
  return unsupported("an autoencoder of class {}; Redline has AutoencoderKL and AutoencoderTiny", own);
}

// Of a UNet: pixels of the latents that it was trained with, each way; 0: not told, or not a square.
int64_t square_sample_size(const nlohmann::json& config) {
  const auto size = config.find("sample_size");
  if (size == config.end() || !size->is_number_integer()) return 0;
  const auto side = size->get<int64_t>();
  return side >= 1 && side <= (int64_t{1} << 16) ? side : 0;
}

}  // namespace

/// One request on its way, with everything that was left open filled in.
struct DiffusionEngine::Run {
  ImageRequest request;
  int64_t pictures = 0;
  LatentLayout layout;
  double guidance_scale = 1;  ///< of the classifier-free kind; 1: one branch
  PromptConditions conditions, negative;
  std::unique_ptr<Solver> solver;
  std::unique_ptr<TorchGenerator> generator;
  std::vector<float> noise, latents, init_latents, mask;
  std::vector<float> told_mask;  ///< [1 + channels, height, width] of a network that is told it
  ImageResult result;

  bool guided() const { return guidance_scale != 1; }
  int64_t elements() const { return layout.elements(); }
};

Result<std::unique_ptr<DiffusionEngine>> DiffusionEngine::make(const std::string& path, const ImageOptions& options) {
  REDLINE_ASSIGN(Settings settings, read_settings());
  REDLINE_ASSIGN(PipelineFiles files, PipelineFiles::open(path));
  files.denoiser_file = options.transformer_file;
  std::unique_ptr<DiffusionEngine> engine(new DiffusionEngine());
  DiffusionEngine& e = *engine;
  REDLINE_ASSIGN(e.family_, find_pipeline_family(files.class_name).within(path));
  e.options_ = options;
  if (options.max_side < 64 || options.max_side > 16384)
    return invalid_argument("max_side {} is outside [64, 16384]", options.max_side);
  if (options.max_adapter_rank < 0 || options.max_adapter_rank > 4096)
    return invalid_argument("max_adapter_rank {} is outside [0, 4096]", options.max_adapter_rank);
  if (options.max_batch < 1 || options.max_batch > 64)
    return invalid_argument("max_batch {} is outside [1, 64]", options.max_batch);
  if (options.vae_tile < -1 || (options.vae_tile > 0 && options.vae_tile < 64))
    return invalid_argument("vae_tile {}: tiles have at least 64 pixels", options.vae_tile);

  REDLINE_ASSIGN(const CpuKernels* kernels, cpu_kernels());
  if (options.dtype == ImageType::kQ8) e.options_.dtype = kernels->has_tile_unit ? ImageType::kW8A8 : ImageType::kQ8_0;
  REDLINE_ASSIGN(const int threads, choose_threads(options.threads, settings.threads));
  e.team_ = std::make_unique<WorkerTeam>(threads, std::pair{kernels->worker_begin, kernels->worker_end});
  NetworkOptions network;
  network.interpret = options.use_interpreter;
  network.hang_seconds = settings.hang_seconds;
  if (!options.trace_file.empty()) {
    if (options.use_interpreter)
      return invalid_argument("{}: the interpreter has no workers to draw a timeline of", options.trace_file);
    REDLINE_ASSIGN(e.timeline_, TimelineFile::open(options.trace_file, threads, settings.trace_events));
    network.timeline = e.timeline_.timeline();
  }
  network.compile.kernels = kernels;
  network.compile.exact_f32 = options.dtype == ImageType::kF32;
  network.compile.kv_format = joint_kv_format(*kernels, network.compile.exact_f32);
  REDLINE_ASSIGN(network.compile.weight_cache.cache, read_cache_settings());
  network.compile.weight_cache.kernels = cpu_isa_in_use();

  // Text.
  network.compile.bounds[Symbol::kBatch] = 1;
  network.compile.bounds[Symbol::kTextTokens] = kMostTextTokens;
  REDLINE_TRY(e.open_encoders(files, network));

  // Pixels and latents.
  REDLINE_ASSIGN(Checkpoint vae,
                 options.vae_folder.empty() ? files.open_component("vae") : Checkpoint::open(options.vae_folder));
  // Stored as float32 by most, of which pictures show nothing.
  REDLINE_TRY(convert(vae, options.dtype == ImageType::kF32 ? ImageType::kF32 : ImageType::kBF16));
  REDLINE_ASSIGN(e.autoencoder_, build_autoencoder(vae).within(vae.path));

  // The denoiser.
  REDLINE_ASSIGN(Checkpoint weights, files.open_component(e.family_->denoiser_component));
  const int64_t sample_size = square_sample_size(weights.config);
  REDLINE_TRY(convert(weights, e.options_.dtype));
  REDLINE_ASSIGN(DenoiserModel model,
                 e.family_->build(weights, {options.probe_blocks, options.tail_blocks}).within(weights.path));
  e.family_name_ = model.family;
  const int64_t side = options.max_side / e.autoencoder_.scale;
  SymbolValues& bounds = network.compile.bounds;
  bounds[Symbol::kBatch] = options.max_batch;
  bounds[Symbol::kImageTokens] = side / model.patch * (side / model.patch);
  set_latent_size(bounds, side, side);
  REDLINE_ASSIGN(e.denoiser_,
                 Denoiser::make(std::move(model), network, options.max_adapter_rank, *e.team_).within(weights.path));
  e.adapters_.add("", e.denoiser_->adapters());
  for (const auto& [name, encoder] : e.encoders_)
    e.adapters_.add(name, encoder->adapters(), encoder->is_t5() ? "text_encoder_3" : "");

  // The autoencoder.
  bounds[Symbol::kBatch] = 1;
  if (e.autoencoder_.latent_channels != e.denoiser_->model().latent_channels)
    return invalid_argument("{}: the vae has {} latent channels, the {} {}", path, e.autoencoder_.latent_channels,
                            e.family_->denoiser_component, e.denoiser_->model().latent_channels);
  REDLINE_ASSIGN(e.decode_, Network::make(std::move(e.autoencoder_.decode), network, *e.team_));
  REDLINE_ASSIGN(e.encode_, Network::make(std::move(e.autoencoder_.encode), network, *e.team_));

  e.scheduler_config_ = files.scheduler_config;
  REDLINE_ASSIGN(e.masks_, find_calibration(path, files.defaults.step_cache, options.step_cache_file));
  ImageRequest& d = e.defaults_;
  const PipelineDefaults& own = files.defaults;
  int64_t usual_side = e.family_->side;
  if (usual_side == 0) usual_side = sample_size > 0 ? sample_size * e.autoencoder_.scale : kUsualSide;
  d.width = own.width.value_or(usual_side);
  d.height = own.height.value_or(usual_side);
  d.steps = own.steps.value_or(e.family_->steps);
  d.guidance = own.guidance.value_or(e.family_->guidance);
  d.true_guidance = own.true_guidance.value_or(1);
  d.negative_prompt = own.negative_prompt.value_or("");
  d.max_sequence_length = own.max_sequence_length.value_or(e.family_->text_tokens);
  if (e.denoiser_->is_told_mask()) d.strength = 1;  // what it fills in begins from noise alone
  e.zeros_for_empty_prompt_ = e.family_->zeros_for_empty_prompt && files.zeros_for_empty_prompt.value_or(true);
  REDLINE_TRY(Solver::make(e.scheduler_config_).within(path + "/scheduler"));
  return engine;
}

DiffusionEngine::~DiffusionEngine() { timeline_.write(); }

Status DiffusionEngine::open_encoders(const PipelineFiles& files, const NetworkOptions& options) {
  for (const PipelineComponent& component : files.components) {
    if (component.name.rfind("text_encoder", 0) != 0) continue;
    REDLINE_ASSIGN(Checkpoint checkpoint, files.open_component(component.name));
    const bool eight_bits = options_.dtype == ImageType::kQ8_0 || options_.dtype == ImageType::kW8A8;
    REDLINE_TRY(convert(checkpoint, eight_bits ? ImageType::kBF16 : options_.dtype));
    const bool is_t5 = component.class_name == "T5EncoderModel";
    REDLINE_ASSIGN(TextEncoderModel model,
                   (is_t5 ? build_t5_encoder(checkpoint) : build_clip_text(checkpoint)).within(checkpoint.path));
    // tokenizer_2 belongs to text_encoder_2.
    const std::string tokenizer = "tokenizer" + component.name.substr(std::string("text_encoder").size());
    REDLINE_ASSIGN(PromptTokenizer prompts, PromptTokenizer::open(files.path + "/" + tokenizer, model));
    REDLINE_ASSIGN(encoders_[component.name], TextEncoder::make(component.name, std::move(model), std::move(prompts),
                                                                options, options_.max_adapter_rank, *team_));
  }
  return {};
}

Status DiffusionEngine::resolve(const ImageRequest& request, Run& run) const {
  ImageRequest& r = run.request;
  r = request;
  fill_open(r, defaults_);
  if (r.prompts.empty() && !r.prompt_embeds) return invalid_argument("there is no prompt");
  if (r.prompts.size() > 1 && r.batch > 1 && r.batch != static_cast<int64_t>(r.prompts.size()))
    return invalid_argument("batch {} and {} prompts: give one prompt for all or one for each", r.batch,
                            r.prompts.size());
  run.pictures = std::max<int64_t>(r.batch, static_cast<int64_t>(r.prompts.size()));
  const int64_t scale = autoencoder_.scale, patch = denoiser_->model().patch, unit = scale * patch;
  for (const auto& [name, value] : {std::pair{"width", r.width}, {"height", r.height}}) {
    if (value < unit || value > options_.max_side)
      return invalid_argument("{} {} is outside [{}, {}]{}", name, value, unit, options_.max_side,
                              value > options_.max_side ? "; raise max_side" : "");
    if (value % unit != 0)
      return invalid_argument("{} {} is no multiple of {}; {} and {} are", name, value, unit, value / unit * unit,
                              (value / unit + 1) * unit);
  }
  if (r.steps < 1 || r.steps > 1000) return invalid_argument("steps {} is outside [1, 1000]", r.steps);
  if (r.max_sequence_length < 1 || r.max_sequence_length > kMostTextTokens)
    return invalid_argument("max_sequence_length {} is outside [1, {}]", r.max_sequence_length, kMostTextTokens);
  run.guidance_scale = family_->is_distilled ? r.true_guidance : r.guidance;
  if (!(run.guidance_scale >= 0 && run.guidance_scale <= 100))
    return invalid_argument("guidance {} is outside [0, 100]", run.guidance_scale);
  if (run.guidance_scale <= 1) run.guidance_scale = 1;  // as diffusers: guidance begins above one
  const int64_t rows = run.pictures * (run.guided() ? 2 : 1);
  if (rows > options_.max_batch)
    return invalid_argument("{} pictures{} are more than max_batch {}", run.pictures,
                            run.guided() ? " with two branches of guidance each" : "", options_.max_batch);
  run.layout = {denoiser_->model().latent_channels, r.height / scale, r.width / scale, patch};
  run.generator = std::make_unique<TorchGenerator>(r.seed);
  return {};
}

// Embeddings that the caller brings, in place of the encoders'; they have no negative branch.
Status DiffusionEngine::take_embeds(Run& run) const {
  const DenoiserModel& model = denoiser_->model();
  const FloatArray& text = *run.request.prompt_embeds;
  if (run.guided())
    return invalid_argument("prompt embeddings have no negative branch: set {} to 1",
                            family_->is_distilled ? "true_guidance" : "guidance");
  if (text.shape.size() != 3 || text.shape[2] != model.text_width || text.shape[1] > kMostTextTokens ||
      (text.shape[0] != 1 && text.shape[0] != run.pictures))
    return invalid_argument("prompt_embeds is [{}], the request asks for [{}, tokens, {}]", fmt::join(text.shape, ", "),
                            run.pictures, model.text_width);
  PromptConditions& c = run.conditions;
  c.prompts = text.shape[0];
  c.tokens = text.shape[1];
  c.values["text"] = text.data;
  if (model.masks_text)
    c.integers["key_lengths"].assign(static_cast<size_t>(c.prompts), static_cast<int32_t>(c.tokens));
  if (model.pooled_width == 0) return {};
  const FloatArray* pooled = run.request.pooled_embeds;
  if (!pooled) return invalid_argument("this pipeline takes pooled embeddings beside prompt embeddings: give both");
  if (pooled->shape != std::vector<int64_t>{c.prompts, model.pooled_width})
    return invalid_argument("pooled_embeds is [{}], the request asks for [{}, {}]", fmt::join(pooled->shape, ", "),
                            c.prompts, model.pooled_width);
  c.values["pooled"] = pooled->data;
  return {};
}

Status DiffusionEngine::encode_prompts(Run& run) {
  const Clock::time_point begin = Clock::now();
  if (run.request.prompt_embeds) {
    REDLINE_TRY(take_embeds(run));
    add_sizes(run);
    return {};
  }
  if (run.request.pooled_embeds) return invalid_argument("pooled embeddings go with prompt embeddings: give both");
  REDLINE_ASSIGN(run.conditions, family_->condition(encoders_, denoiser_->model(), run.request.prompts,
                                                    run.request.max_sequence_length));
  run.result.warnings = run.conditions.warnings;
  if (run.guided() && zeros_for_empty_prompt_ && run.request.negative_prompt.empty()) {
    run.negative = run.conditions;
    for (auto& [name, values] : run.negative.values) std::fill(values.begin(), values.end(), 0.0f);
  } else if (run.guided()) {
    const std::span<const std::string> negative(&run.request.negative_prompt, 1);
    REDLINE_ASSIGN(run.negative,
                   family_->condition(encoders_, denoiser_->model(), negative, run.request.max_sequence_length));
    for (const std::string& warning : run.negative.warnings)
      run.result.warnings.push_back("negative prompt: " + warning);
  }
  add_sizes(run);
  run.result.text_ms = ms_since(begin);
  return {};
}

void DiffusionEngine::add_sizes(Run& run) const {
  if (denoiser_->model().num_time_ids == 0) return;
  const std::vector<float> ids = sdxl_time_ids(run.request.width, run.request.height);
  for (PromptConditions* branch : {&run.conditions, &run.negative})
    for (int64_t p = 0; p < branch->prompts; ++p)
      branch->values["time_ids"].insert(branch->values["time_ids"].end(), ids.begin(), ids.end());
}

Status DiffusionEngine::draw_noise(Run& run) {
  const int64_t n = run.elements() * run.pictures;
  const std::vector<int64_t> shape = {run.pictures, run.layout.channels, run.layout.height, run.layout.width};
  if (const FloatArray* given = run.request.init_noise) {
    if (given->shape != shape)
      return invalid_argument("init_noise is [{}], the request asks for [{}]", fmt::join(given->shape, ", "),
                              fmt::join(shape, ", "));
    run.noise = given->data;
  } else {
    run.noise.resize(static_cast<size_t>(n));
    run.generator->draw(run.noise);
  }
  return {};
}

// Latents of the picture to begin from, and the mask at their size. One picture serves the whole batch. A network that is
// told the mask needs the picture only where its noise does not cover it (as diffusers, which then draws nothing for it).
Status DiffusionEngine::read_init_picture(Run& run) {
  const ImageRequest& r = run.request;
  if (r.mask && !r.init_picture) return invalid_argument("a mask needs the picture that it belongs to");
  if (!r.init_picture) return {};
  for (const auto& [name, picture] : {std::pair{"the picture to begin from", r.init_picture}, {"the mask", r.mask}})
    if (picture && (picture->width != r.width || picture->height != r.height))
      return invalid_argument("{} is {}x{}, the request asks for {}x{}; scale it, or ask for its size", name,
                              picture->width, picture->height, r.width, r.height);
  if (!(r.strength > 0 && r.strength <= 1)) return invalid_argument("strength {} is outside (0, 1]", r.strength);
  if (denoiser_->is_told_mask() && r.strength == 1) return {};
  const std::vector<float> pixels = pixel_values(r.init_picture, nullptr, r.width, r.height);
  REDLINE_ASSIGN(const std::vector<float> one,
                 encode_pixels(autoencoder_, encode_, pixels, run.layout, *run.generator));
  for (int64_t p = 0; p < run.pictures; ++p) run.init_latents.insert(run.init_latents.end(), one.begin(), one.end());
  if (!r.mask || denoiser_->is_told_mask()) return {};
  const std::vector<float> plane = latent_mask(r.mask, run.layout, autoencoder_.scale);
  for (int64_t p = 0; p < run.pictures * run.layout.channels; ++p)
    run.mask.insert(run.mask.end(), plane.begin(), plane.end());
  return {};
}

// What an inpainting network is told beside the latents: the mask, and latents of the picture without what it covers.
Status DiffusionEngine::read_told_mask(Run& run) {
  if (!denoiser_->is_told_mask()) return {};
  const ImageRequest& r = run.request;
  if (!r.mask)
    run.result.warnings.emplace_back("the network fills in what a mask shows; without one it draws everything anew");
  // Without a mask nothing of the picture is kept.
  const std::vector<float> pixels = pixel_values(r.mask ? r.init_picture : nullptr, r.mask, r.width, r.height);
  REDLINE_ASSIGN(const std::vector<float> kept,
                 encode_pixels(autoencoder_, encode_, pixels, run.layout, *run.generator));
  run.told_mask = latent_mask(r.mask, run.layout, autoencoder_.scale);
  run.told_mask.insert(run.told_mask.end(), kept.begin(), kept.end());
  return {};
}

Status DiffusionEngine::denoise(Run& run, const std::function<bool(const ImageProgress&)>& on_step) {
  const ImageRequest& r = run.request;
  const Clock::time_point begin = Clock::now();
  nlohmann::json config = scheduler_config_;
  if (!r.solver.empty()) {
    REDLINE_ASSIGN(config, with_solver(std::move(config), r.solver));
  }
  REDLINE_ASSIGN(run.solver, Solver::make(config));
  Solver& solver = *run.solver;
  StepPlan plan;
  plan.steps = static_cast<int>(r.steps);
  plan.image_tokens = run.layout.height / run.layout.patch * (run.layout.width / run.layout.patch);
  plan.strength = run.init_latents.empty() ? 1 : r.strength;
  plan.even_sigmas = family_->even_sigmas;
  REDLINE_TRY(solver.set_steps(plan));

  const auto n = static_cast<size_t>(run.elements()), pictures = static_cast<size_t>(run.pictures);
  FloatArray latents;
  latents.shape = {run.pictures, run.layout.channels, run.layout.height, run.layout.width};
  std::vector<float>& x = latents.data;
  x.resize(n * pictures);
  // As diffusers: what a mask lets be drawn wholly anew begins from noise alone.
  const bool from_noise = run.init_latents.empty() || (!run.mask.empty() && r.strength == 1);
  if (!from_noise) solver.add_noise(0, run.init_latents, run.noise, x);
  else
    std::transform(run.noise.begin(), run.noise.end(), x.begin(),
                   [&](float v) { return v * solver.init_noise_sigma(); });

  REDLINE_ASSIGN(DenoiserBatch batch, make_denoiser_batch(run.layout, run.pictures, r.guidance, run.conditions,
                                                          run.guided() ? &run.negative : nullptr));
  const int64_t rows = batch.rows;
  batch.timesteps.assign(solver.timesteps().begin(), solver.timesteps().end());
  batch.told_mask = std::move(run.told_mask);
  REDLINE_TRY(denoiser_->begin(std::move(batch)));
  std::vector<int64_t> all(static_cast<size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  RuleRequest rule;
  rule.rule = r.cache;
  rule.quality = r.quality;
  rule.steps_budget = r.steps_budget;
  rule.masks = masks_;
  REDLINE_ASSIGN(StepCache cache, StepCache::make(rule));
  if (!options_.step_cache_file.empty())
    REDLINE_TRY(require_mask(masks_, solver.num_steps(), cache.plan().budget).within(options_.step_cache_file));
  REDLINE_ASSIGN(CachedDenoiser denoiser,
                 CachedDenoiser::make(*denoiser_, std::move(cache), {options_.probe_blocks, options_.tail_blocks}));
  run.result.warnings.insert(run.result.warnings.end(), denoiser.warnings().begin(), denoiser.warnings().end());
  std::vector<float> scaled(x.size()), outputs(n * static_cast<size_t>(rows)), renoised;
  const int steps = solver.num_steps();
  for (int i = 0; i < steps; ++i) {
    const Clock::time_point step_begin = Clock::now();
    solver.scale_input(i, x, scaled);
    const double timestep = solver.timesteps()[static_cast<size_t>(i)];
    const StepPoint at = step_point(solver, config, i);
    const double share = static_cast<double>(i) / steps;
    const bool guided = run.guided() && share >= r.guidance_begin && share < r.guidance_end;
    const std::span<const int64_t> positive = std::span(all).first(pictures), wanted = guided ? all : positive;
    if (r.split_guidance && guided) {
      REDLINE_TRY(denoiser.evaluate(positive, scaled, timestep, at, outputs));
      REDLINE_TRY(denoiser.evaluate(std::span(all).subspan(pictures), scaled, timestep, at, outputs));
    } else {
      REDLINE_TRY(denoiser.evaluate(wanted, scaled, timestep, at, outputs));
    }
    const std::span<float> output = std::span(outputs).first(x.size());
    if (guided) {
      const std::span<const float> negative = std::span(outputs).subspan(x.size());
      const auto scale = static_cast<float>(run.guidance_scale);
      for (size_t k = 0; k < x.size(); ++k) output[k] = negative[k] + scale * (output[k] - negative[k]);
    }
    if (!all_finite(output))
      return internal("step {} of {}: the network's output has values that are not numbers; try --dtype f32", i + 1,
                      steps);
    REDLINE_TRY(solver.step(i, output, x, *run.generator));
    if (!run.mask.empty()) {
      // What the mask keeps is the picture itself, at the noise of the level that was reached.
      renoised.resize(x.size());
      solver.add_noise(i + 1, run.init_latents, run.noise, renoised);
      for (size_t k = 0; k < x.size(); ++k) x[k] = run.mask[k] * x[k] + (1 - run.mask[k]) * renoised[k];
    }
    run.result.step_ms.push_back(ms_since(step_begin));
    run.result.computed.push_back(denoiser.computed_pictures());
    ImageProgress progress;
    progress.step = i + 1;
    progress.steps = steps;
    progress.step_ms = run.result.step_ms.back();
    progress.computed = run.result.computed.back();
    progress.latents = &latents;
    progress.output = output.data();
    progress.sigma = at.sigma;
    progress.next_sigma = at.next_sigma;
    progress.step_size = at.step_size;
    if (on_step && !on_step(progress)) return cancelled("stopped after step {} of {}", i + 1, steps);
  }
  run.result.executed_share = denoiser.executed_share();
  run.result.operations = denoiser.executed_operations();
  run.result.latents = std::move(latents);
  run.result.loop_ms = ms_since(begin);
  return {};
}

// Side of the vae's tiles in latent pixels; 0: the whole picture at once.
int64_t DiffusionEngine::vae_tile(const LatentLayout& layout) const {
  constexpr double kMostBytes = 4.0 * (int64_t{1} << 30);
  constexpr int64_t kLeastTile = 32;  // below, norms and attention see too little of the picture
  const int64_t longest = std::max(layout.height, layout.width);
  int64_t tile = options_.vae_tile / autoencoder_.scale;
  if (options_.vae_tile < 0) return 0;
  if (options_.vae_tile == 0) {
    if (!decode_.program()) return 0;
    // Nearly all of the arena grows with the number of pixels.
    const int64_t most_side = options_.max_side / autoencoder_.scale;
    const double bytes =
        static_cast<double>(decode_.program()->arena_plan.bytes) / static_cast<double>(most_side * most_side);
    if (bytes * static_cast<double>(layout.height * layout.width) <= kMostBytes) return 0;
    tile = std::max(kLeastTile, static_cast<int64_t>(std::sqrt(kMostBytes / bytes)));
  }
  return tile < longest ? tile : 0;
}

Status DiffusionEngine::decode(Run& run) {
  const Clock::time_point begin = Clock::now();
  LatentLayout pixels = run.layout;
  pixels.patch = 1;
  SymbolValues sizes;
  sizes[Symbol::kBatch] = 1;
  set_latent_size(sizes, pixels.height, pixels.width);
  const auto n = static_cast<size_t>(pixels.elements());
  std::vector<float> z(n), blended;
  const int64_t tile = vae_tile(pixels);
  if (tile > 0 && options_.vae_tile == 0)
    run.result.warnings.push_back(
        fmt::format("the vae would take more than 4 GiB for the whole picture: it decodes blended tiles of {} pixels; "
                    "--vae-tile off decodes the whole",
                    tile * autoencoder_.scale));
  for (int64_t p = 0; p < run.pictures; ++p) {
    const float* latents = run.result.latents.data.data() + static_cast<size_t>(p) * n;
    for (size_t i = 0; i < n; ++i) z[i] = static_cast<float>(latents[i] / autoencoder_.scaling + autoencoder_.shift);
    const float* rgb = nullptr;
    if (tile > 0) {
      REDLINE_TRY(decode_in_tiles(decode_, pixels, z, autoencoder_.scale, tile, blended).within("vae"));
      rgb = blended.data();
    } else {
      pack_latents(pixels, z.data(), decode_.input("latents"));
      REDLINE_TRY(decode_.run(sizes).within("vae"));
      rgb = decode_.output("picture");
    }
    RgbPicture picture;
    picture.width = run.request.width;
    picture.height = run.request.height;
    picture.rgb.resize(static_cast<size_t>(picture.width * picture.height * 3));
    if (!all_finite(std::span(rgb, picture.rgb.size())))
      return internal("the vae's picture has values that are not numbers; try --dtype f32");
    for (size_t i = 0; i < picture.rgb.size(); ++i)
      picture.rgb[i] = static_cast<uint8_t>(std::nearbyint(std::clamp(rgb[i] * 0.5f + 0.5f, 0.0f, 1.0f) * 255.0f));
    run.result.pictures.push_back(std::move(picture));
  }
  run.result.decode_ms = ms_since(begin);
  return {};
}

Result<ImageResult> DiffusionEngine::generate(const ImageRequest& request,
                                              const std::function<bool(const ImageProgress&)>& on_step) {
  std::lock_guard lock(mutex_);
  Run run;
  REDLINE_TRY(resolve(request, run));
  REDLINE_TRY(encode_prompts(run));
  REDLINE_TRY(read_init_picture(run));
  REDLINE_TRY(draw_noise(run));
  REDLINE_TRY(read_told_mask(run));
  REDLINE_TRY(denoise(run, on_step));
  REDLINE_TRY(decode(run));
  if (!request.keep_latents) run.result.latents = {};
  return std::move(run.result);
}

Status DiffusionEngine::load_adapter(const std::string& name, const std::string& path) {
  std::lock_guard lock(mutex_);
  if (options_.max_adapter_rank == 0)
    return invalid_argument("the engine was opened without room for adapters; set max_adapter_rank");
  REDLINE_ASSIGN(const AdapterFile file, AdapterFile::open(path));
  return adapters_.load(name, file, options_.use_interpreter);
}

Status DiffusionEngine::set_adapters(const std::vector<std::pair<std::string, double>>& adapters) {
  std::lock_guard lock(mutex_);
  return adapters_.set(adapters);
}

ImageEngine::MemoryReport DiffusionEngine::memory() const {
  MemoryReport report;
  std::vector<const Network*> networks = denoiser_->networks();
  for (const auto& [name, encoder] : encoders_) networks.push_back(&encoder->network());
  networks.insert(networks.end(), {&decode_, &encode_});
  for (const Network* network : networks) {
    if (!network->program()) continue;
    report.packed_weights += network->program()->weight_bytes;
    report.arena += network->program()->arena_plan.bytes;
    report.arena_without_reuse += network->program()->arena_plan.bytes_without_reuse;
    report.arena_touched += network->resident_arena_bytes();
  }
  return report;
}

std::string DiffusionEngine::describe_program() const {
  std::string text;
  for (const Network* network : denoiser_->networks())
    if (network->program()) text += network->program()->to_string();
  if (decode_.program()) text += decode_.program()->to_string();
  return text;
}

Status save_png(const std::string& path, const RgbPicture& picture) { return write_png(path, picture); }

Result<int64_t> adapter_rank(const std::string& path) {
  REDLINE_ASSIGN(const AdapterFile file, AdapterFile::open(path));
  return file.max_rank;
}

Result<ImageType> image_type_from_name(std::string_view name) {
  constexpr std::pair<std::string_view, ImageType> kTypes[] = {{"auto", ImageType::kAuto}, {"f32", ImageType::kF32},
                                                               {"bf16", ImageType::kBF16}, {"q8", ImageType::kQ8},
                                                               {"q8_0", ImageType::kQ8_0}, {"w8a8", ImageType::kW8A8}};
  for (const auto& [known, type] : kTypes)
    if (known == name) return type;
  return invalid_argument("dtype \"{}\" is none of auto, f32, bf16, q8, q8_0, w8a8", name);
}

Result<std::unique_ptr<ImageEngine>> ImageEngine::open(const std::string& path, const ImageOptions& options) {
  try {
    REDLINE_ASSIGN(std::unique_ptr<DiffusionEngine> engine, DiffusionEngine::make(path, options));
    return std::unique_ptr<ImageEngine>(std::move(engine));
  } catch (const std::bad_alloc&) {
    return out_of_memory("{}: no room to open the pipeline", path);
  }
}

}  // namespace redline
