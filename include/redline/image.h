// Pictures: a diffusion pipeline in, pixels out. Start here.
//
//   auto engine = redline::ImageEngine::open("assets/redline-shapes");
//   if (!engine.ok()) return fail(engine.status());
//   redline::ImageRequest request = (*engine)->defaults();
//   request.prompts = {"a large red circle on a blue background"};
//   auto result = (*engine)->generate(request);
//   redline::save_png("out.png", result->pictures[0]);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "redline/picture.h"
#include "redline/status.h"

namespace redline {

enum class ImageType : uint8_t {
  kAuto,  ///< weights as they are stored, products in what is fastest for their type, float32 sums
  kF32,   ///< float32 throughout
  kBF16,  ///< weights of matrices rounded to bfloat16
  kQ8,    ///< weights of matrices rounded to 8 bits: w8a8 where a tile unit multiplies by it, else q8_0
  kQ8_0,  ///< in blocks of 32
  kW8A8,  ///< with a scale for each row; what meets them is rounded to 8 bits too
};
/// "auto", "f32", "bf16", "q8", "q8_0", "w8a8"; invalid_argument otherwise.
Result<ImageType> image_type_from_name(std::string_view name);

struct ImageOptions {
  int threads = 0;  ///< worker threads; 0: REDLINE_THREADS, else every core this process may use
  ImageType dtype = ImageType::kAuto;
  int64_t max_side = 2048;       ///< most pixels of a picture, each way
  int64_t max_batch = 8;         ///< most pictures of one request, branches of guidance counted
  int64_t probe_blocks = 1;      ///< blocks that a step cache sees before it decides
  int64_t tail_blocks = 0;       ///< blocks that run behind those that a step cache skips (DBCache's Bn)
  int64_t max_adapter_rank = 0;  ///< room for LoRA adapters of this rank, all together; 0: none
  int64_t vae_tile = 0;          ///< pixels of a tile that the vae decodes at once; 0: by memory; -1: the whole picture
  bool use_interpreter = false;  ///< run the plain graphs op by op in float64: slow, the reference
  std::string transformer_file;  ///< FLUX.1's transformer in one file (safetensors, GGUF), not the folder's; "": that
  /// Masks for budgets of steps (`redline calibrate`); "": the file that the model's redline.json names, else its
  /// step_cache.json, when there is one.
  std::string step_cache_file;
  std::string vae_folder;  ///< an autoencoder (AutoencoderKL, AutoencoderTiny), not the folder's own; "": that
  std::string trace_file;  ///< write a timeline (Perfetto JSON) when the engine closes; "" for none
};

/// A dense float32 array, C order.
struct FloatArray {
  std::vector<int64_t> shape;
  std::vector<float> data;
};

struct ImageProgress {
  int64_t step = 0, steps = 0;  ///< steps that are done
  double step_ms = 0;           ///< of the last one
  int64_t computed = 0;         ///< pictures of the batch whose step was computed, not forecast
  /// Latents after the step, [batch, channels, height, width]; valid during the call.
  const FloatArray* latents = nullptr;
  /// What the network said, guided, as the solver took it; as large as the latents.
  const float* output = nullptr;
  double sigma = 0, next_sigma = 0;  ///< share of noise in the latents, before and after the step
  double step_size = 0;  ///< the step added this times `output` to the latents (Euler); 0: another kind of solver
};

struct ImageRequest {
  std::vector<std::string> prompts;  ///< one for each picture, or one for all
  std::string negative_prompt;       ///< what true guidance leads away from
  int64_t width = 0, height = 0;     ///< pixels; 0: the model's recommendation
  int64_t steps = 0;                 ///< 0: the model's recommendation
  double guidance = -1;              ///< scale of guidance: distilled (FLUX.1 dev) or classifier-free; -1: the model's
  double true_guidance = -1;         ///< classifier-free guidance of a distilled model; 1: none; -1: the model's
  double guidance_begin = 0, guidance_end = 1;  ///< part of the steps in which classifier-free guidance is at work
  bool split_guidance = false;                  ///< branches one after the other: half the memory
  int64_t max_sequence_length = 0;              ///< tokens of text (T5); 0: the model's recommendation
  int64_t batch = 1;                            ///< pictures, when there is one prompt
  uint64_t seed = 0;                            ///< as torch.Generator("cpu").manual_seed
  std::string solver;                           ///< scheduler class instead of the model's own; "" for that
  std::string cache;                          ///< rule of the step cache: "none", "auto", "fbcache:threshold=0.1", ...
  double quality = -1;                        ///< 0 .. 1, instead of a rule's threshold; -1: not given
  int64_t steps_budget = 0;                   ///< steps to compute, the others are forecast; 0: not given
  const FloatArray* init_noise = nullptr;     ///< standard normal [batch, channels, height / 8, width / 8]
  const FloatArray* prompt_embeds = nullptr;  ///< [batch, tokens, width] instead of the encoders' (with pooled_embeds)
  const FloatArray* pooled_embeds = nullptr;  ///< [batch, width]
  const RgbPicture* init_picture = nullptr;   ///< image to image: begins from this picture
  const RgbPicture* mask = nullptr;           ///< inpainting: white is drawn anew, black stays
  double strength = 0.8;                      ///< of image to image: share of the steps that are run
  bool keep_latents = false;
};

struct ImageResult {
  std::vector<RgbPicture> pictures;
  FloatArray latents;  ///< final [batch, channels, h, w] as the solver leaves them; when keep_latents
  std::vector<double> step_ms;
  std::vector<int64_t> computed;  ///< of each step: pictures whose step was computed
  double text_ms = 0, loop_ms = 0, decode_ms = 0;
  double operations = 0;              ///< floating-point operations of the denoiser's products
  double executed_share = 1;          ///< of those that it takes without a step cache
  std::vector<std::string> warnings;  ///< a prompt that was cut, and the like
};

class ImageEngine {
 public:
  /// `path`: a diffusers folder. `options.max_side` and `max_batch` bound address space, not memory.
  static Result<std::unique_ptr<ImageEngine>> open(const std::string& path, const ImageOptions& options = {});
  virtual ~ImageEngine() = default;

  /// "flux"; and the pipeline's class name.
  virtual const std::string& family() const = 0;
  /// A request with the model's recommended settings (redline.json, else the family's).
  virtual ImageRequest defaults() const = 0;
  /// Calls `on_step` after every step; returning false ends the run with Code::cancelled.
  /// invalid_argument, naming the field and the mend: sizes that the model's patch does not divide, arrays of a wrong
  /// shape, guidance that the model does not have. internal: latents that are not numbers.
  virtual Result<ImageResult> generate(const ImageRequest& request,
                                       const std::function<bool(const ImageProgress&)>& on_step = {}) = 0;
  /// Reads a LoRA file (safetensors, PEFT's or kohya's names), of the denoiser and of text encoders, and keeps it under
  /// `name`; without effect until set. invalid_argument: a network or a module that the pipeline does not have, shapes
  /// or ranks that do not fit, a name that is taken.
  virtual Status load_adapter(const std::string& name, const std::string& path) = 0;
  /// The adapters of the next requests, each with its weight, in place of those set before: a matter of pointers.
  /// not_found: no such name.
  virtual Status set_adapters(const std::vector<std::pair<std::string, double>>& adapters) = 0;

  struct MemoryReport {
    int64_t packed_weights = 0, arena = 0, arena_without_reuse = 0;
    int64_t arena_touched = 0;  ///< what pictures have needed of the arena so far
  };
  /// At the size of the last picture, or of the recommended one.
  virtual MemoryReport memory() const = 0;
  virtual std::string describe_program() const = 0;
};

/// The largest rank in a LoRA file: what ImageOptions::max_adapter_rank must hold. Errors as load_adapter's.
Result<int64_t> adapter_rank(const std::string& path);

/// io: the file cannot be written.
Status save_png(const std::string& path, const RgbPicture& picture);

}  // namespace redline
