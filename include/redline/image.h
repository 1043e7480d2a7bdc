// Text-to-image generation with a diffusion pipeline. Start here.
//
//   auto engine = redline::ImageEngine::open("assets/redline-shapes");
//   if (!engine.ok()) return fail(engine.status());
//   redline::ImageRequest request = (*engine)->defaults();
//   request.prompts = {"a large red circle on a blue background"};
//   auto result = (*engine)->generate(request);
//   if (!result.ok()) return fail(result.status());
//   const redline::Status saved = redline::save_png("out.png", result->images[0]);
//   if (!saved.ok()) return fail(saved);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "redline/precision.h"
#include "redline/rgb_image.h"
#include "redline/runtime.h"
#include "redline/status.h"

namespace redline {

struct ImageOptions {
  int threads = 0;  ///< worker threads; 0: REDLINE_THREADS, else all cores available to the process
  Precision dtype = Precision::kAuto;
  /// "cpu"; "emu": the kernels of GPUs on an emulated device, slowly; "cuda" or "cuda:N"; "auto": what REDLINE_DEVICE
  /// names, else a GPU that can run the model, else the CPU
  std::string device = "auto";
  int64_t max_side = 2048;       ///< largest width and height, in pixels
  int64_t max_batch = 8;         ///< maximum images of one request times guidance branches
  int64_t front_blocks = 1;      ///< blocks that run before the step cache decides
  int64_t tail_blocks = 0;       ///< blocks that run after those that a step cache skips (DBCache's Bn)
  int64_t max_adapter_rank = 0;  ///< maximum sum of the ranks of active LoRA adapters; 0: none can be loaded
  int64_t vae_tile = 0;          ///< side of the VAE's decoding tiles, in pixels; 0: chosen by memory; -1: no tiles
  bool use_interpreter = false;  ///< reference mode: run the graphs op by op in float64, slowly
  std::string
      transformer_file;  ///< a single-file transformer (FLUX.1: safetensors, GGUF) that replaces the folder's; "": none
  /// Masks for step budgets (written by `redline calibrate`). "": the file that the model's redline.json names, else
  /// its step_cache.json, if any.
  std::string step_cache_file;
  std::string vae_folder;  ///< an autoencoder (AutoencoderKL, AutoencoderTiny) that replaces the pipeline's; "": none
  std::string trace_file;  ///< write a timeline (Perfetto JSON) when the engine closes; "": none
  std::shared_ptr<Runtime> runtime;  ///< shared with other engines; null: one with `threads` and `trace_file`
};

/// A dense float32 array, C order.
struct FloatArray {
  std::vector<int64_t> shape;
  std::vector<float> data;
};

struct ImageProgress {
  int64_t step = 0, steps = 0;  ///< completed steps, total steps
  double step_ms = 0;           ///< of the last one
  int64_t computed = 0;         ///< images of the batch whose step was computed, not forecast
  /// Latents after the step, [batch, channels, height, width]; valid during the call.
  const FloatArray* latents = nullptr;
  /// Model output after guidance, as passed to the solver; the shape of the latents.
  const float* output = nullptr;
  double sigma = 0, next_sigma = 0;  ///< noise level of the latents before and after the step
  double step_size = 0;              ///< Euler: the step added step_size * output to the latents; 0: other solvers
  /// A preview of image `index` of the batch, as the model expects it at this step; its longer side has at
  /// most `max_side` pixels (or is one pixel of the latents). Decoded when it is called, during the call only.
  std::function<Result<RgbImage>(int64_t index, int64_t max_side)> preview;
};

struct ImageRequest {
  std::vector<std::string> prompts;  ///< one per image, or one for all
  std::string negative_prompt;       ///< for classifier-free guidance
  int64_t width = 0, height = 0;     ///< pixels; 0: as ImageEngine::size_of
  int64_t num_inference_steps = 0;   ///< 0: the model's default
  double guidance_scale = -1;        ///< distilled (FLUX.1 dev) or classifier-free; -1: the model's default
  double true_cfg_scale = -1;        ///< classifier-free guidance of a distilled model; 1: none; -1: the default
  double guidance_begin = 0, guidance_end = 1;  ///< fraction of the steps with classifier-free guidance
  bool split_guidance = false;                  ///< runs the guidance branches sequentially: half the memory
  int64_t max_sequence_length = 0;              ///< text tokens (T5); 0: the model's default
  int64_t batch = 1;                            ///< images per prompt, with one prompt
  uint64_t seed = 0;                            ///< as torch.Generator("cpu").manual_seed
  /// Image i draws its noise from seed + i, as with a list of generators in diffusers, so that it is the image of a
  /// request with that seed alone. False: one generator draws for the whole batch.
  bool seed_each = false;
  std::string solver;        ///< scheduler class or short name that replaces the model's; "": none
  std::string cache;         ///< rule of the step cache: "none", "auto", "fbcache:threshold=0.1", ...
  double quality = -1;       ///< 0 .. 1, sets the rule's threshold; -1: unset
  int64_t steps_budget = 0;  ///< computed steps, the others are forecast; 0: unset
  // Arrays and images are shared by copies of the request. Null: none.
  std::shared_ptr<const FloatArray> init_noise;  ///< standard normal, the shape of the latents; null: drawn from seed
  /// [batch, tokens, width], replaces the text encoders (with pooled_embeds)
  std::shared_ptr<const FloatArray> prompt_embeds;
  std::shared_ptr<const FloatArray> pooled_embeds;  ///< [batch, width]
  /// The same of the negative prompt, for classifier-free guidance with prompt_embeds.
  std::shared_ptr<const FloatArray> negative_prompt_embeds, negative_pooled_embeds;
  std::shared_ptr<const RgbImage> init_image;  ///< image to image: starts from this image, of any size
  /// Inpainting: white is regenerated, black is kept. A pixel is white from a luminance of 128 on; any size.
  std::shared_ptr<const RgbImage> mask;
  /// How init_image and mask become as large as the result: "stretch" (the default of diffusers; also ""), "crop" or
  /// "fit" (the border pixels fill the rest), each with Lanczos' filter.
  std::string resize;
  double strength = 0.8;  ///< image to image: fraction of the steps that run
  /// With `mask`: pixels where it is black are those of `init_image` to the last bit, and gray blends. False: what the
  /// VAE makes of them.
  bool keep_unmasked = false;
  bool keep_latents = false;  ///< the result has the final latents
  bool skip_decode = false;   ///< no images: for keep_latents, and ImageEngine::decode later
};

/// What the text encoders make of prompts, for ImageRequest::prompt_embeds and pooled_embeds.
struct PromptEmbeds {
  FloatArray text;                    ///< [prompts, tokens, width]
  FloatArray pooled;                  ///< [prompts, width]; empty: the pipeline has none
  std::vector<std::string> warnings;  ///< e.g. a truncated prompt
};

struct ImageResult {
  std::vector<RgbImage> images;       ///< [batch], or [prompts]; empty with skip_decode
  FloatArray latents;                 ///< final latents [batch, channels, h, w] of the solver, if keep_latents
  std::vector<double> step_ms;        ///< by step
  std::vector<int64_t> computed;      ///< per step: images whose step was computed, not forecast
  double text_ms = 0;                 ///< text encoders
  double loop_ms = 0;                 ///< all steps
  double decode_ms = 0;               ///< VAE, latents to pixels
  std::string cache;                  ///< rule of the step cache with its parameters: "fbcache:threshold=0.08"
  std::string solver;                 ///< short name of the one that was used: "flow-euler", "dpm++-karras"
  double operations = 0;              ///< floating-point operations of the denoiser's matrix products
  double executed_share = 1;          ///< operations relative to a run without a step cache
  std::vector<std::string> warnings;  ///< e.g. a truncated prompt
};

class ImageEngine {
 public:
  /// `path`: a diffusers folder. `options.max_side` and `max_batch` bound address space, not memory.
  static Result<std::unique_ptr<ImageEngine>> open(const std::string& path, const ImageOptions& options = {});
  virtual ~ImageEngine() = default;

  /// For example "flux"; and the pipeline's class name.
  virtual const std::string& family() const = 0;
  /// Whether guidance was distilled into the network (FLUX.1): guidance_scale is then one of its inputs, and
  /// classifier-free guidance is true_cfg_scale.
  virtual bool is_guidance_distilled() const = 0;
  /// False: guidance_scale has no effect (FLUX.1 schnell, which was distilled without it).
  virtual bool takes_guidance_scale() const = 0;
  /// Width and height are multiples of this many pixels.
  virtual int64_t size_multiple() const = 0;
  /// Width and height of the result of a request: those that it has; else those of init_image, rounded down to
  /// size_multiple, or in its proportions as many pixels as the model's own size if a side exceeds max_side; else the
  /// model's own.
  virtual std::pair<int64_t, int64_t> size_of(const ImageRequest& request) const = 0;
  /// A request with the model's default settings (redline.json, else the family's).
  virtual ImageRequest defaults() const = 0;
  /// Calls `on_step` after every step; returning false ends the run with Code::cancelled.
  /// invalid_argument: sizes that are not multiples of the model's patch, arrays of a wrong shape, guidance that the
  /// model does not support; the message names the field and the fix. internal: latents that are not finite.
  virtual Result<ImageResult> generate(const ImageRequest& request,
                                       const std::function<bool(const ImageProgress&)>& on_step = {}) = 0;
  /// Runs the text encoders alone. `max_sequence_length`: text tokens (T5); 0: the model's default. Padding that the
  /// denoiser does not attend to is cut off; unsupported: prompts of different lengths in such a pipeline.
  virtual Result<PromptEmbeds> encode_prompts(const std::vector<std::string>& prompts,
                                              int64_t max_sequence_length = 0) = 0;
  /// Images of final latents [batch, channels, height, width], as keep_latents gives them.
  virtual Result<std::vector<RgbImage>> decode(const FloatArray& latents) = 0;
  /// Loads a LoRA file (safetensors with PEFT or kohya names) for the denoiser and the text encoders as `name`; it has
  /// no effect until set_adapters. invalid_argument: a model or module that the pipeline does not have, shapes or ranks
  /// that do not fit, a name already in use.
  virtual Status load_adapter(const std::string& name, const std::string& path) = 0;
  /// Replaces the active adapters and their weights for the following requests. Only pointers change.
  /// not_found: no such name.
  virtual Status set_adapters(const std::vector<std::pair<std::string, double>>& adapters) = 0;

  struct MemoryReport {
    int64_t packed_weights = 0, arena = 0, arena_without_reuse = 0;
    int64_t arena_touched = 0;  ///< resident bytes of the arena
  };
  /// Memory of all models of the pipeline.
  virtual MemoryReport memory() const = 0;
};

/// A rule of the step cache, for ImageRequest::cache.
struct StepCacheRule {
  std::string name;                                  ///< "fbcache"
  std::string summary;                               ///< one line
  std::string source;                                ///< paper or repository; "-": none
  bool is_default = false;                           ///< the one that "auto" stands for
  bool takes_quality = false, takes_budget = false;  ///< ImageRequest::quality, steps_budget
};
std::vector<StepCacheRule> step_cache_rules();

/// A solver in other programs: the sampler and the schedule of noise levels of A1111's web UI ("DPM++ 2M", "Karras"; the
/// schedule may be empty) and of ComfyUI ("dpmpp_2m", "karras").
struct SamplerNames {
  std::string web_ui, web_ui_schedule;
  std::string comfyui, comfyui_schedule;
};
/// Of a name as ImageResult::solver gives it; what Redline does not know keeps its name.
SamplerNames sampler_names(const std::string& solver);

/// True: ImageRequest::solver takes this name of a sampler of A1111's web UI, ComfyUI or diffusers, with or without
/// "-karras" and the like. Some models run only part of these.
bool is_known_sampler(const std::string& sampler);

/// The maximum rank in a LoRA file. ImageOptions::max_adapter_rank must be at least the sum over the active files. Same
/// errors as load_adapter.
Result<int64_t> adapter_rank(const std::string& path);

/// io: the file cannot be written.
Status save_png(const std::string& path, const RgbImage& image);

}  // namespace redline
