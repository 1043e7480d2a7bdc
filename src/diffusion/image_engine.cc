#include "diffusion/image_engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <tuple>

#include "base/elapsed.h"
#include "diffusion/denoise_loop.h"
#include "diffusion/image_request.h"
#include "diffusion/prompt_syntax.h"
#include "media/mask.h"
#include "media/png.h"
#include "media/resize.h"

namespace redline {
namespace {

using Clock = std::chrono::steady_clock;
/// Replaces pixels of `image` by those of `initial` where the mask is black, and by a mixture where it is gray.
void keep_unmasked(const RgbImage& initial, const RgbImage& mask, RgbImage& image) {
  for (size_t i = 0; i < image.rgb.size(); ++i) {
    const int share = mask.rgb[i], kept = 255 - share;
    image.rgb[i] = static_cast<uint8_t>((image.rgb[i] * share + initial.rgb[i] * kept + 127) / 255);
  }
}

/// Appends rows of zeros up to `tokens` for each prompt; the denoiser does not attend to them.
void pad_text(PromptConditions& branch, int64_t tokens) {
  const std::vector<float> text = std::move(branch.values["text"]);
  const size_t before = text.size() / static_cast<size_t>(branch.prompts);
  const size_t after = before / static_cast<size_t>(branch.tokens) * static_cast<size_t>(tokens);
  std::vector<float> padded(after * static_cast<size_t>(branch.prompts));
  for (size_t i = 0; i < static_cast<size_t>(branch.prompts); ++i)
    std::copy_n(text.data() + i * before, before, padded.data() + i * after);
  branch.values["text"] = std::move(padded);
  branch.tokens = tokens;
}

/// Returns the number of pixels that width and height must be multiples of.
int64_t size_multiple(const Pipeline& p) { return p.vae.scale() * p.denoiser->model().patch; }

/// Returns the size for an initial image, with its proportions, rounded down to the model's multiple. With one
/// requested side, the other follows. Without a requested side, and if a side exceeds the limit, the image gets as many
/// pixels as the model's default size.
std::pair<int64_t, int64_t> size_near(const Pipeline& p, const RgbImage& image, const ImageRequest& r) {
  const int64_t unit = size_multiple(p), most = p.options.max_side / unit * unit;
  const auto width = static_cast<double>(std::max<int64_t>(image.width, 1)),
             height = static_cast<double>(std::max<int64_t>(image.height, 1));
  double scale = 1;
  if (r.width > 0) scale = static_cast<double>(r.width) / width;
  else if (r.height > 0) scale = static_cast<double>(r.height) / height;
  else if (std::max(image.width, image.height) > p.options.max_side)
    scale = std::sqrt(static_cast<double>(p.defaults.width * p.defaults.height) / (width * height));
  const auto side = [&](double pixels) {
    const auto scaled = static_cast<int64_t>(std::nearbyint(std::min(pixels * scale, 1e9)));
    return std::clamp(scaled / unit * unit, unit, most);
  };
  return {side(width), side(height)};
}

std::pair<int64_t, int64_t> size_of(const Pipeline& p, const ImageRequest& r) {
  const auto [width, height] =
      r.init_image ? size_near(p, *r.init_image, r) : std::pair(p.defaults.width, p.defaults.height);
  return {r.width != 0 ? r.width : width, r.height != 0 ? r.height : height};
}

/// Adds the frames of one item to `result`, as an image or as a video.
void add_frames(const Pipeline& p, std::vector<RgbImage> frames, MediaResult& result) {
  if (p.vae.model().has_frames()) result.videos.push_back({std::move(frames), p.row->frame_rate});
  else result.images.push_back(std::move(frames.front()));
}

/// "64x48"
std::string size_text(const RgbImage& image) { return fmt::format("{}x{}", image.width, image.height); }

/// Executes one request: gathers its inputs step by step and makes the result.
class GenerateTask {
 public:
  GenerateTask(Pipeline& pipeline, const ImageRequest& request) : p_(pipeline), request_(request) {}
  Result<ImageResult> run(const std::function<bool(const ImageProgress&)>& on_step);

 private:
  Status resolve();
  Status expect_size() const;
  Status expect_frames() const;
  Status take_guidance_scale();
  Status encode_prompts();
  Status take_embeds(const char* name, const FloatArray& text, const FloatArray* pooled,
                     PromptConditions& branch) const;
  Status take_all_embeds();
  Result<PromptConditions> conditions_of(std::span<const std::string> prompts) const;
  void add_time_ids();
  Status draw_noise();
  Status fit_images();
  void add_warnings(const std::vector<std::string>& warnings) {
    result_.warnings.insert(result_.warnings.end(), warnings.begin(), warnings.end());
  }
  Status encode_init_image();
  Status encode_mask_latents();
  Status decode();

  Pipeline& p_;
  ImageRequest request_;
  DenoiseInputs in_;
  std::unique_ptr<TorchGenerators> generators_;
  ImageResult result_;
};

Status GenerateTask::resolve() {
  ImageRequest& r = request_;
  std::tie(r.width, r.height) = size_of(p_, r);
  fill_open(r, p_.defaults);
  const auto prompts = static_cast<int64_t>(r.prompts.size());
  if (r.prompts.empty() && !r.prompt_embeds) return invalid_argument("there is no prompt");
  if (prompts > 1 && r.batch > 1 && r.batch != prompts)
    return invalid_argument("batch {} and {} prompts: give one prompt for all or one for each", r.batch, prompts);
  REDLINE_TRY(expect_size());
  REDLINE_TRY(expect_frames());
  REDLINE_TRY(fit_images());
  if (r.num_inference_steps < 1 || r.num_inference_steps > 1000)
    return invalid_argument("steps {} is outside [1, 1000]", r.num_inference_steps);
  if (r.max_sequence_length < 1 || r.max_sequence_length > kMaxTextTokens)
    return invalid_argument("max_sequence_length {} is outside [1, {}]", r.max_sequence_length, kMaxTextTokens);
  in_.request = &request_;
  in_.images = std::max(r.batch, prompts);
  REDLINE_TRY(take_guidance_scale());
  const DenoiserModel& model = p_.denoiser->model();
  in_.latents = {model.latent_channels, r.height / p_.vae.scale(), r.width / p_.vae.scale(), model.patch,
                 p_.vae.model().latent_frames(r.num_frames)};
  generators_ = std::make_unique<TorchGenerators>(r.seed, r.seed_each ? in_.images : 1);
  in_.generator = generators_.get();
  return {};
}

Status GenerateTask::expect_size() const {
  const int64_t unit = size_multiple(p_), max_side = p_.options.max_side;
  for (const auto& [name, value] : {std::pair{"width", request_.width}, {"height", request_.height}}) {
    if (value > max_side)
      return invalid_argument("{} {} is outside [{}, {}]; at most {}x{} pixels", name, value, unit, max_side,
                              max_side / unit * unit, max_side / unit * unit);
    if (value < unit) return invalid_argument("{} {} is outside [{}, {}]", name, value, unit, max_side);
    if (value % unit != 0)
      return invalid_argument("{} {} is not a multiple of {}; use {} or {}", name, value, unit, value / unit * unit,
                              (value / unit + 1) * unit);
  }
  return {};
}

Status GenerateTask::expect_frames() const {
  const int64_t frames = request_.num_frames, most = max_frames(*p_.row);
  if (p_.vae.model().has_frames() && request_.init_image)
    return unsupported("this pipeline makes video, which does not begin with an image yet");
  if (frames >= 1 && frames <= most) return {};
  if (most == 1) return invalid_argument("num_frames {}: this pipeline makes images, which are one frame", frames);
  return invalid_argument("num_frames {} is outside [1, {}]", frames, most);
}

// Makes initial image and mask as large as the result, and the mask gray.
Status GenerateTask::fit_images() {
  ImageRequest& r = request_;
  REDLINE_ASSIGN(const ResizeMode mode, resize_mode_of(r.resize));
  if (r.mask && !r.init_image) return invalid_argument("a mask needs the image that it belongs to");
  if (!r.init_image) return {};
  for (const auto& [name, image] : {std::pair{"the initial image", r.init_image}, {"the mask", r.mask}})
    if (image && (image->width < 1 || image->height < 1 || std::ssize(image->rgb) != image->width * image->height * 3))
      return invalid_argument("{} is {}, with {} bytes of pixels", name, size_text(*image), image->rgb.size());
  const auto fit = [&](std::shared_ptr<const RgbImage>& image) {
    if (image->width == r.width && image->height == r.height) return false;
    image = std::make_shared<const RgbImage>(resize_image(*image, r.width, r.height, mode));
    return true;
  };
  const std::string before = size_text(*r.init_image);
  if (r.mask) {
    RgbImage gray = gray_mask(*r.mask);
    const bool is_other = gray.width != r.init_image->width || gray.height != r.init_image->height;
    const auto by_height = static_cast<double>(gray.width * r.init_image->height),
               by_width = static_cast<double>(gray.height * r.init_image->width);
    constexpr double kRounding = 0.03;  // tolerance for sides that were rounded to pixels
    if (std::abs(by_height - by_width) > kRounding * by_height)
      result_.warnings.push_back(
          fmt::format("the mask is {}, the initial image {}: it is stretched to the image", size_text(gray), before));
    // The mask is cropped at the same place as the image.
    if (is_other && mode != ResizeMode::kStretch)
      gray = resize_lanczos(gray, r.init_image->width, r.init_image->height);
    r.mask = std::make_shared<const RgbImage>(std::move(gray));
    fit(r.mask);
    if (!has_white(*r.mask))
      result_.warnings.emplace_back(
          "the mask has no white pixel, so that nothing is regenerated; white (or transparent, in OpenAI's edits) "
          "marks the part to draw");
  }
  if (fit(r.init_image))
    result_.warnings.push_back(fmt::format("the initial image is resized from {} to {} ({})", before,
                                           size_text(*r.init_image), resize_mode_name(mode)));
  return {};
}

Status GenerateTask::take_guidance_scale() {
  double& scale = in_.guidance_scale;
  scale = p_.row->is_distilled ? request_.true_cfg_scale : request_.guidance_scale;
  if (!(scale >= 0 && scale <= 100)) return invalid_argument("guidance {} is outside [0, 100]", scale);
  const double begin = request_.guidance_begin, end = request_.guidance_end;
  if (!(begin >= 0 && begin <= end && end <= 1))
    return invalid_argument("guidance from {} to {} of the steps; expected 0 <= guidance_begin <= guidance_end <= 1",
                            begin, end);
  if (scale <= 1) scale = 1;  // as in diffusers: guidance begins above one
  if (in_.images * (in_.guided() ? 2 : 1) > p_.options.max_batch)
    return invalid_argument("{} images{} are more than max_batch {}", in_.images,
                            in_.guided() ? " with two branches of guidance each" : "", p_.options.max_batch);
  return {};
}

// Takes embeddings of the caller instead of running the text encoders.
Status GenerateTask::take_all_embeds() {
  const ImageRequest& r = request_;
  REDLINE_TRY(take_embeds("prompt_embeds", *r.prompt_embeds, r.pooled_embeds.get(), in_.positive));
  if (!in_.guided()) return {};
  if (!r.negative_prompt_embeds)
    return invalid_argument("guidance needs negative_prompt_embeds beside prompt_embeds; give them, or set {} to 1",
                            p_.row->is_distilled ? "true_cfg_scale" : "guidance_scale");
  REDLINE_TRY(
      take_embeds("negative_prompt_embeds", *r.negative_prompt_embeds, r.negative_pooled_embeds.get(), in_.negative));
  const int64_t tokens = std::max(in_.positive.tokens, in_.negative.tokens);
  for (PromptConditions* branch : {&in_.positive, &in_.negative}) {
    if (branch->tokens == tokens) continue;
    if (!p_.denoiser->model().masks_text)
      return invalid_argument("negative_prompt_embeds has {} tokens, prompt_embeds {}; encode both to one length",
                              in_.negative.tokens, in_.positive.tokens);
    pad_text(*branch, tokens);
  }
  return {};
}

Status GenerateTask::take_embeds(const char* name, const FloatArray& text, const FloatArray* pooled,
                                 PromptConditions& branch) const {
  const DenoiserModel& model = p_.denoiser->model();
  if (text.shape.size() != 3 || text.shape[2] != model.text_width || text.shape[1] < 1 ||
      text.shape[1] > kMaxTextTokens || (text.shape[0] != 1 && text.shape[0] != in_.images))
    return invalid_argument("{} is [{}], the request asks for [{}, tokens, {}]", name, fmt::join(text.shape, ", "),
                            in_.images, model.text_width);
  PromptConditions& c = branch;
  c.prompts = text.shape[0];
  c.tokens = text.shape[1];
  c.values["text"] = text.data;
  if (model.masks_text)
    c.integers["key_lengths"].assign(static_cast<size_t>(c.prompts), static_cast<int32_t>(c.tokens));
  if (model.pooled_width == 0) return {};
  if (!pooled) return invalid_argument("this pipeline takes prompt embeddings and pooled embeddings; give both");
  if (pooled->shape != std::vector<int64_t>{c.prompts, model.pooled_width})
    return invalid_argument("the pooled embeddings of {} are [{}], the request asks for [{}, {}]", name,
                            fmt::join(pooled->shape, ", "), c.prompts, model.pooled_width);
  c.values["pooled"] = pooled->data;
  return {};
}

Result<PromptConditions> GenerateTask::conditions_of(std::span<const std::string> prompts) const {
  return p_.row->condition(p_.prompt_encoders, p_.denoiser->model(), prompts, request_.max_sequence_length);
}

Status GenerateTask::encode_prompts() {
  const Clock::time_point begin = Clock::now();
  if (request_.prompt_embeds) {
    REDLINE_TRY(take_all_embeds());
    add_time_ids();
    return {};
  }
  if (request_.pooled_embeds) return invalid_argument("pooled embeddings need prompt embeddings; give both");
  REDLINE_ASSIGN(in_.positive, conditions_of(request_.prompts));
  add_warnings(in_.positive.warnings);
  add_warnings(prompt_syntax_warnings(request_.prompts));
  if (std::string warning = p_.prompt_words.warning(request_.prompts); !warning.empty())
    result_.warnings.push_back(std::move(warning));
  if (in_.guided() && p_.zeros_for_empty_prompt && request_.negative_prompt.empty()) {
    in_.negative = in_.positive;
    for (auto& [name, values] : in_.negative.values) std::fill(values.begin(), values.end(), 0.0f);
  } else if (in_.guided()) {
    REDLINE_ASSIGN(in_.negative, conditions_of({&request_.negative_prompt, 1}));
    for (const std::string& warning : in_.negative.warnings) result_.warnings.push_back("negative prompt: " + warning);
  }
  add_time_ids();
  result_.text_ms = ms_since(begin);
  return {};
}

void GenerateTask::add_time_ids() {
  if (!p_.row->time_ids) return;
  const std::vector<float> ids = p_.row->time_ids(request_.width, request_.height);
  for (PromptConditions* branch : {&in_.positive, &in_.negative})
    for (int64_t prompt = 0; prompt < branch->prompts; ++prompt)
      branch->values["time_ids"].insert(branch->values["time_ids"].end(), ids.begin(), ids.end());
}

Status GenerateTask::draw_noise() {
  const LatentShape& l = in_.latents;
  const std::vector<int64_t> shape = l.planes(in_.images, p_.vae.model().has_frames());
  if (const std::shared_ptr<const FloatArray>& given = request_.init_noise) {
    if (given->shape != shape)
      return invalid_argument("init_noise is [{}], the request asks for [{}]", fmt::join(given->shape, ", "),
                              fmt::join(shape, ", "));
    in_.noise = packed_images(l, given->data);
  } else {
    in_.noise.resize(static_cast<size_t>(l.elements() * in_.images));
    RowNoise(l, *generators_).draw(in_.noise);
  }
  return {};
}

// Latents of the initial image, and the mask at their size. One image serves the whole batch. An inpainting network at
// full strength does not use them, and diffusers then draws no noise for them either.
Status GenerateTask::encode_init_image() {
  const ImageRequest& r = request_;
  if (!r.init_image) return {};
  if (!(r.strength > 0 && r.strength <= 1)) return invalid_argument("strength {} is outside (0, 1]", r.strength);
  const bool takes_mask = p_.denoiser->is_inpainting();
  if (takes_mask && r.strength == 1) return {};
  const std::vector<float> pixels = pixel_values(r.init_image.get(), nullptr, r.width, r.height);
  REDLINE_ASSIGN(const std::vector<float> planes, p_.vae.encode(pixels, in_.latents, *generators_));
  const std::vector<float> drawn = packed_images(in_.latents, planes);
  for (int64_t i = 0; i < in_.images / generators_->count(); ++i)
    in_.init_latents.insert(in_.init_latents.end(), drawn.begin(), drawn.end());
  if (!r.mask || takes_mask) return {};
  const std::vector<float> plane = latent_mask(r.mask.get(), in_.latents, p_.vae.scale());
  std::vector<float> all_channels;
  for (int64_t i = 0; i < in_.latents.channels; ++i)
    all_channels.insert(all_channels.end(), plane.begin(), plane.end());
  const std::vector<float> rows = packed_images(in_.latents, all_channels);
  for (int64_t i = 0; i < in_.images; ++i) in_.mask.insert(in_.mask.end(), rows.begin(), rows.end());
  return {};
}

// Computes the extra input channels of an inpainting network: the mask, and latents of the image with its masked area
// blanked.
Status GenerateTask::encode_mask_latents() {
  if (!p_.denoiser->is_inpainting()) return {};
  const ImageRequest& r = request_;
  if (!r.mask)
    result_.warnings.emplace_back("this is an inpainting model; without a mask it regenerates the whole image");
  // Without a mask the whole image is regenerated, so none of it is kept.
  const std::vector<float> pixels =
      pixel_values(r.mask ? r.init_image.get() : nullptr, r.mask.get(), r.width, r.height);
  REDLINE_ASSIGN(const std::vector<float> kept, p_.vae.encode(pixels, in_.latents, *generators_));
  const std::vector<float> mask = latent_mask(r.mask.get(), in_.latents, p_.vae.scale());
  const auto n = static_cast<std::ptrdiff_t>(in_.latents.elements());
  std::vector<float> planes;
  for (auto at = kept.begin(); at != kept.end(); at += n) {
    planes.insert(planes.end(), mask.begin(), mask.end());
    planes.insert(planes.end(), at, at + n);
  }
  LatentShape with_mask = in_.latents;
  ++with_mask.channels;
  in_.mask_latents = packed_images(with_mask, planes);
  return {};
}

Status GenerateTask::decode() {
  const Clock::time_point begin = Clock::now();
  const LatentShape& shape = in_.latents;
  const auto n = static_cast<size_t>(shape.elements());
  if (const int64_t tile = p_.vae.tile_pixels(shape); tile > 0 && p_.options.vae_tile == 0)
    result_.warnings.push_back(fmt::format(
        "decoding the whole image at once would take more than 4 GiB: the vae decodes blended tiles of {} pixels; use "
        "--vae-tile off to decode it whole",
        tile));
  for (size_t i = 0; i < static_cast<size_t>(in_.images); ++i) {
    REDLINE_ASSIGN(std::vector<RgbImage> frames,
                   p_.vae.decode(std::span(result_.latents.data).subspan(i * n, n), shape));
    // Clips of the lengths between those of whole frames of the latents end earlier.
    frames.resize(static_cast<size_t>(request_.num_frames));
    if (request_.keep_unmasked && request_.mask) keep_unmasked(*request_.init_image, *request_.mask, frames.front());
    add_frames(p_, std::move(frames), result_);
  }
  result_.decode_ms = ms_since(begin);
  return {};
}

Result<ImageResult> GenerateTask::run(const std::function<bool(const ImageProgress&)>& on_step) {
  REDLINE_TRY(resolve());
  REDLINE_TRY(encode_prompts());
  // The order of the generator's draws is that of diffusers.
  REDLINE_TRY(encode_init_image());
  REDLINE_TRY(draw_noise());
  REDLINE_TRY(encode_mask_latents());
  REDLINE_TRY(DenoiseLoop(p_, in_).run(on_step, result_));
  if (!request_.skip_decode) REDLINE_TRY(decode());
  if (!request_.keep_latents) result_.latents = {};
  return std::move(result_);
}

}  // namespace

namespace {

/// Returns functions that open the components of a pipeline, in the order in which they run.
std::vector<WeightExaminer::Open> open_components(const std::string& path, const Pipeline& pipeline) {
  Result<PipelineFiles> files = PipelineFiles::open(path);
  if (!files.ok()) return {};
  files->denoiser_file = pipeline.options.transformer_file;
  std::vector<std::string> names;
  for (const auto& [name, encoder] : pipeline.text_encoders) names.push_back(name);
  names.emplace_back(pipeline.row->denoiser_component);
  const std::string& vae = pipeline.options.vae_folder;
  if (vae.empty()) names.emplace_back("vae");
  std::vector<WeightExaminer::Open> parts;
  for (const std::string& name : names)
    parts.emplace_back([files = *files, name] { return files.open_component(name); });
  if (!vae.empty()) parts.emplace_back([vae] { return Checkpoint::open(vae); });
  return parts;
}

}  // namespace

DiffusionEngine::DiffusionEngine(std::unique_ptr<Pipeline> pipeline, const std::string& path)
    : pipeline_(std::move(pipeline)), examiner_(open_components(path, *pipeline_)) {}

Status DiffusionEngine::explained(Status failure) {
  const bool is_broken = failure.code() == Code::internal && failure.message().find("not finite") != std::string::npos;
  return is_broken ? examiner_.explain(std::move(failure)) : failure;
}

int64_t DiffusionEngine::size_multiple() const { return redline::size_multiple(*pipeline_); }

std::pair<int64_t, int64_t> DiffusionEngine::size_of(const ImageRequest& request) const {
  return redline::size_of(*pipeline_, request);
}

Result<ImageResult> DiffusionEngine::generate(const ImageRequest& request,
                                              const std::function<bool(const ImageProgress&)>& on_step) {
  std::lock_guard lock(mutex_);
  Result<ImageResult> result = GenerateTask(*pipeline_, request).run(on_step);
  if (!result.ok()) return explained(result.status());
  return result;
}

Result<PromptEmbeds> DiffusionEngine::encode_prompts(const std::vector<std::string>& prompts,
                                                     int64_t max_sequence_length) {
  std::lock_guard lock(mutex_);
  const Pipeline& p = *pipeline_;
  const DenoiserModel& model = p.denoiser->model();
  if (prompts.empty()) return invalid_argument("there is no prompt");
  if (max_sequence_length == 0) max_sequence_length = p.defaults.max_sequence_length;
  if (max_sequence_length < 1 || max_sequence_length > kMaxTextTokens)
    return invalid_argument("max_sequence_length {} is outside [1, {}]", max_sequence_length, kMaxTextTokens);
  REDLINE_ASSIGN(PromptConditions c, p.row->condition(p.prompt_encoders, model, prompts, max_sequence_length));
  PromptEmbeds embeds;
  embeds.warnings = std::move(c.warnings);
  embeds.text = {{c.prompts, c.tokens, model.text_width}, std::move(c.values["text"])};
  if (!all_finite(embeds.text.data))
    return explained(internal("the embeddings of the prompts are not finite; try --dtype f32"));
  if (model.pooled_width != 0) embeds.pooled = {{c.prompts, model.pooled_width}, std::move(c.values["pooled"])};
  if (!model.masks_text) return embeds;
  const std::vector<int32_t>& lengths = c.integers["key_lengths"];
  const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
  if (lengths.empty() || *least == c.tokens) return embeds;
  if (*least != *most)
    return unsupported(
        "the prompts have {} to {} tokens, and this denoiser does not attend to padding; encode them one by one",
        *least, *most);
  FloatArray cut = {{c.prompts, *most, model.text_width}, {}};
  for (int64_t prompt = 0; prompt < c.prompts; ++prompt) {
    const auto begin = embeds.text.data.begin() + prompt * c.tokens * model.text_width;
    cut.data.insert(cut.data.end(), begin, begin + *most * model.text_width);
  }
  embeds.text = std::move(cut);
  return embeds;
}

Result<MediaResult> DiffusionEngine::decode(const FloatArray& latents) {
  std::lock_guard lock(mutex_);
  Pipeline& p = *pipeline_;
  const std::vector<int64_t>& shape = latents.shape;
  const int64_t channels = p.denoiser->model().latent_channels, most = p.options.max_side / p.vae.scale();
  const bool has_frames = p.vae.model().has_frames();
  const int64_t max_latent_frames = p.vae.model().latent_frames(max_frames(*p.row));
  const size_t axes = has_frames ? 5 : 4;
  const auto within = [&](size_t axis, int64_t limit) { return shape[axis] >= 1 && shape[axis] <= limit; };
  if (shape.size() != axes || shape[0] < 1 || shape[1] != channels || !within(axes - 2, most) ||
      !within(axes - 1, most) || (has_frames && !within(2, max_latent_frames)))
    return invalid_argument("latents are [{}]; this pipeline decodes [items, {}, {}1..{}, 1..{}]",
                            fmt::join(shape, ", "), channels,
                            has_frames ? fmt::format("1..{}, ", max_latent_frames) : "", most, most);
  const LatentShape one = {channels, shape[axes - 2], shape[axes - 1], p.denoiser->model().patch,
                           has_frames ? shape[2] : 1};
  const auto n = static_cast<size_t>(one.elements());
  if (latents.data.size() != n * static_cast<size_t>(shape[0]))
    return invalid_argument("latents [{}] have {} elements", fmt::join(shape, ", "), latents.data.size());
  if (!std::all_of(latents.data.begin(), latents.data.end(), [](float value) { return std::isfinite(value); }))
    return invalid_argument("the latents have values that are not finite");
  MediaResult result;
  for (size_t i = 0; i < static_cast<size_t>(shape[0]); ++i) {
    Result<std::vector<RgbImage>> frames = p.vae.decode(std::span(latents.data).subspan(i * n, n), one);
    if (!frames.ok()) return explained(frames.status());
    add_frames(p, std::move(frames).value(), result);
  }
  return result;
}

Status DiffusionEngine::load_adapter(const std::string& name, const std::string& path) {
  std::lock_guard lock(mutex_);
  if (pipeline_->options.max_adapter_rank == 0)
    return invalid_argument("the engine was opened without room for adapters; set max_adapter_rank");
  REDLINE_ASSIGN(const AdapterFile file, AdapterFile::open(path));
  return pipeline_->adapters.load(name, file, pipeline_->options.use_interpreter);
}

Status DiffusionEngine::set_adapters(const std::vector<std::pair<std::string, double>>& adapters) {
  std::lock_guard lock(mutex_);
  return pipeline_->adapters.set(adapters);
}

ImageEngine::MemoryReport DiffusionEngine::memory() const {
  MemoryReport report;
  for (const Executable* network : pipeline_->networks()) {
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
  for (const Executable* network : pipeline_->denoiser->networks())
    if (network->program()) text += network->program()->to_string();
  if (pipeline_->vae.decoder().program()) text += pipeline_->vae.decoder().program()->to_string();
  return text;
}

std::string describe_program(const ImageEngine& engine) {
  const auto* diffusion = dynamic_cast<const DiffusionEngine*>(&engine);
  REDLINE_CHECK(diffusion != nullptr);
  return diffusion->describe_program();
}

Status save_png(const std::string& path, const RgbImage& image) { return write_png(path, image); }

Result<int64_t> adapter_rank(const std::string& path) {
  REDLINE_ASSIGN(const AdapterFile file, AdapterFile::open(path));
  return file.max_rank;
}

Result<std::unique_ptr<ImageEngine>> ImageEngine::open(const std::string& path, const ImageOptions& options) {
  try {
    REDLINE_ASSIGN(std::unique_ptr<Pipeline> pipeline, load_pipeline(path, options));
    return std::unique_ptr<ImageEngine>(std::make_unique<DiffusionEngine>(std::move(pipeline), path));
  } catch (const std::bad_alloc&) {
    return out_of_memory("{}: out of memory while opening the pipeline", path);
  }
}

}  // namespace redline
