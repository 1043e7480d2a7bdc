// redline image: generates images from text prompts.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <set>
#include <tuple>

#include "base/elapsed.h"
#include "base/output_file.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/flag_names.h"
#include "cli/image_settings.h"
#include "cli/lora_option.h"
#include "cli/memory_advice.h"
#include "cli/model_name.h"
#include "cli/terminal_image.h"
#include "formats/npy.h"
#include "media/image_file.h"

namespace redline::cli {
namespace {

namespace fs = std::filesystem;

Status read_size(const std::string& text, ImageRequest& request) {
  int64_t width = 0, height = 0;
  char x = 0, rest = 0;
  if (std::sscanf(text.c_str(), "%ld%c%ld%c", &width, &x, &height, &rest) != 3 || (x != 'x' && x != 'X') || width < 1 ||
      height < 1)
    return invalid_argument("flag --size: \"{}\" is not WIDTHxHEIGHT, as 1024x768", text);
  request.width = width;
  request.height = height;
  return {};
}

Status read_interval(const std::string& text, ImageRequest& request) {
  char rest = 0;
  if (std::sscanf(text.c_str(), "%lf:%lf%c", &request.guidance_begin, &request.guidance_end, &rest) != 2 ||
      !(request.guidance_begin >= 0 && request.guidance_begin <= request.guidance_end && request.guidance_end <= 1))
    return invalid_argument("flag --guidance-interval: \"{}\" is not A:B with 0 <= A <= B <= 1", text);
  return {};
}

/// Reads the arrays and images of the request from their files.
Status read_request_files(const ImageArgs& args, ImageRequest& request) {
  const auto array = [](const std::string& path, std::shared_ptr<const FloatArray>& to) -> Status {
    if (path.empty()) return {};
    REDLINE_ASSIGN(NpyArray read, read_npy(path));
    to = std::make_shared<const FloatArray>(FloatArray{std::move(read.shape), std::move(read.values)});
    return {};
  };
  REDLINE_TRY(array(args.init_noise, request.init_noise));
  REDLINE_TRY(array(args.prompt_embeds, request.prompt_embeds));
  REDLINE_TRY(array(args.pooled_embeds, request.pooled_embeds));
  if (!args.init_image.empty()) {
    REDLINE_ASSIGN(RgbImage image, read_image(args.init_image));
    request.init_image = std::make_shared<const RgbImage>(std::move(image));
  }
  if (args.mask.empty()) return {};
  REDLINE_ASSIGN(const AlphaImage mask, read_alpha_image(args.mask));
  request.mask = std::make_shared<const RgbImage>(gray_mask(mask));
  return {};
}

/// Returns PROMPT, or one prompt for each line of standard input.
Result<std::vector<std::string>> prompts_of(const ImageArgs& args, Terminal& terminal) {
  if (args.prompt ? *args.prompt != "-" : !terminal.has_piped_input()) {
    if (!args.prompt && args.prompt_embeds.empty())
      return invalid_argument("PROMPT is missing: the text to draw, or a pipe that gives one on each line");
    return std::vector<std::string>{args.prompt.value_or("")};
  }
  REDLINE_ASSIGN(const std::string text, terminal.read_input());
  std::vector<std::string> prompts;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    const size_t next = end + 1;
    if (end > begin && text[end - 1] == '\r') --end;
    if (end > begin) prompts.push_back(text.substr(begin, end - begin));
    begin = next;
  }
  if (prompts.empty()) return invalid_argument("PROMPT is missing, and standard input is empty");
  return prompts;
}

Status read_guidance(const ImageArgs& args, bool is_distilled, ImageRequest& r) {
  if (args.guidance) r.guidance_scale = static_cast<double>(*args.guidance);
  if (args.true_cfg_scale) r.true_cfg_scale = static_cast<double>(*args.true_cfg_scale);
  if (!args.cfg_scale) return {};
  if (is_distilled ? args.true_cfg_scale : args.guidance)
    return invalid_argument("flags --cfg-scale and --{} are the same for this model; give one of them",
                            is_distilled ? "true-cfg-scale" : "guidance");
  (is_distilled ? r.true_cfg_scale : r.guidance_scale) = static_cast<double>(*args.cfg_scale);
  return {};
}

bool is_png(const std::string& path) {
  char head[4] = {};
  std::ifstream(path, std::ios::binary).read(head, sizeof head);
  return std::string_view(head, sizeof head) == "\x89PNG";
}

Result<ImageRequest> image_request_of(const ImageArgs& args, const ImageEngine& engine,
                                      std::vector<std::string> prompts) {
  ImageRequest r = engine.defaults();
  r.prompts = std::move(prompts);
  REDLINE_TRY(read_request_files(args, r));
  r.width = r.height = 0;
  if (!args.size.empty()) REDLINE_TRY(read_size(args.size, r));
  if (args.width) r.width = *args.width;
  if (args.height) r.height = *args.height;
  std::tie(r.width, r.height) = engine.size_of(r);
  r.resize = args.resize;
  if (!args.guidance_interval.empty()) REDLINE_TRY(read_interval(args.guidance_interval, r));
  if (!args.negative.empty()) r.negative_prompt = args.negative;
  if (args.steps) r.num_inference_steps = *args.steps;
  REDLINE_TRY(read_guidance(args, engine.is_guidance_distilled(), r));
  if (args.max_sequence_length) r.max_sequence_length = *args.max_sequence_length;
  if (args.strength) r.strength = static_cast<double>(*args.strength);
  if (args.quality) r.quality = static_cast<double>(*args.quality);
  if (args.steps_budget) r.steps_budget = *args.steps_budget;
  r.seed = args.seed ? *args.seed : std::random_device()();
  r.seed_each = true;
  r.batch = args.batch;
  r.split_guidance = args.split_guidance;
  r.solver = args.solver;
  r.cache = args.cache;
  if (r.mask) r.keep_unmasked = args.keep_unmasked == "auto" ? is_png(args.init_image) : args.keep_unmasked == "on";
  r.keep_latents = !args.save_latents.empty();
  return r;
}

/// Refuses flags that the model does not support, and lists flags that have no effect on this image.
Status check_effects(const ImageArgs& args, const ImageEngine& engine, const ImageRequest& r, Terminal& terminal) {
  const bool is_distilled = engine.is_guidance_distilled();
  if (args.true_cfg_scale && !is_distilled)
    return invalid_argument("flag --true-cfg-scale: guidance was not distilled into this model; use --guidance");
  for (const char* flag : {"strength", "mask"})
    if (args.given.contains(flag) && !r.init_image)
      return invalid_argument("flag --{} has no effect without --init-image", flag);
  if (args.given.contains("keep-unmasked") && !r.mask)
    return invalid_argument("flag --keep-unmasked has no effect without --mask");
  const auto has_no_effect = [&](const char* flag, const std::string& why) {
    if (args.given.contains(flag)) terminal.note("redline: flag --{} has no effect: {}", flag, why);
  };
  if (!engine.takes_guidance_scale() && r.guidance_scale != engine.defaults().guidance_scale)
    has_no_effect("guidance", "this model was distilled without a guidance scale; --true-cfg-scale guides it");
  if ((is_distilled ? r.true_cfg_scale : r.guidance_scale) <= 1) {
    const std::string off =
        fmt::format("guidance is off; --{} above 1 turns it on", is_distilled ? "true-cfg-scale" : "guidance");
    if (!args.negative.empty()) has_no_effect("negative", off);
    has_no_effect("guidance-interval", off);
    has_no_effect("split-guidance", off);
  }
  if (r.cache.empty() && r.quality < 0 && r.steps_budget == 0)
    for (const char* flag : {"masks", "front-blocks", "tail-blocks"})
      has_no_effect(flag, "there is no step cache; --cache, --quality or --steps-budget chooses one");
  return {};
}

/// Returns "out-2.png" for "out.png" and 2.
std::string numbered(const std::string& path, size_t number) {
  const size_t dot = path.rfind('.'), slash = path.rfind('/');
  const size_t at = dot != std::string::npos && (slash == std::string::npos || dot > slash) ? dot : path.size();
  return fmt::format("{}-{}{}", path.substr(0, at), number, path.substr(at));
}

/// The files to which images are written.
class ImageOutput {
 public:
  /// Checks everything that can be checked before minutes of work. io, invalid_argument: the images cannot be written
  /// there.
  static Result<ImageOutput> open(const ImageArgs& args, size_t images, Terminal& terminal) {
    ImageOutput output;
    if (args.output == "-") {
      if (images > 1) return invalid_argument("flag --output: standard output takes one image, not {}", images);
      if (args.json) return invalid_argument("flag --output: - has no effect with --json, which prints there too");
      if (Screen::of(terminal.output()).is_terminal)
        return invalid_argument("flag --output: standard output is a terminal; write {} -o - | ... or -o FILE",
                                "redline image");
      output.is_stdout_ = true;
      return output;
    }
    REDLINE_ASSIGN(output.format_, image_format_of(args.output));
    output.names_ = names_of(args.output, images);
    // Without --output no existing image is overwritten.
    for (int number = 2; !args.given.contains("output") && output.is_any_taken(); ++number)
      output.names_ = names_of(numbered(args.output, static_cast<size_t>(number)), images);
    for (const std::string& name : output.names_) {
      for (const std::string& source : {args.init_image, args.mask}) {
        std::error_code error;
        if (!source.empty() && fs::equivalent(name, source, error))
          return invalid_argument("{}: is an input image; give --output another name", name);
      }
      REDLINE_TRY(prepare_output(name));
    }
    return output;
  }

  /// Writes as many images as possible. Returns the first error.
  Status write(const std::vector<DrawnImage>& images, Terminal& terminal) {
    Status status;
    for (size_t i = 0; i < images.size(); ++i) {
      const Result<std::string> bytes = encode_image(images[i].result.images[i], format_, image_text(images[i]));
      if (!bytes.ok()) return bytes.status();
      if (is_stdout_) {
        terminal.write(*bytes);
        return terminal.finish();
      }
      std::error_code error;
      if (fs::exists(names_[i], error)) replaced_.push_back(names_[i]);
      Status written = write_file(names_[i], *bytes);
      if (status.ok()) status = std::move(written);
    }
    return status;
  }

  bool is_stdout() const { return is_stdout_; }
  const std::vector<std::string>& names() const { return names_; }
  /// Returns the existing files that were overwritten.
  const std::vector<std::string>& replaced() const { return replaced_; }

 private:
  static std::vector<std::string> names_of(const std::string& name, size_t images) {
    std::vector<std::string> names;
    for (size_t i = 0; i < images; ++i) names.push_back(images == 1 ? name : numbered(name, i + 1));
    return names;
  }
  bool is_any_taken() const {
    std::error_code error;
    return std::any_of(names_.begin(), names_.end(), [&](const std::string& name) { return fs::exists(name, error); });
  }

  std::vector<std::string> names_, replaced_;
  ImageFormat format_ = ImageFormat::kPng;
  bool is_stdout_ = false;
};

Status save_step(const std::string& folder, const ImageProgress& progress) {
  return write_npy(fmt::format("{}/step-{:03}.npy", folder, progress.step), progress.latents->shape,
                   progress.latents->data);
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Returns "28 steps", or "28 steps, 10 computed and 18 forecast".
std::string steps_text(const ImageResult& result) {
  const auto steps = static_cast<double>(result.step_ms.size());
  const double computed = computed_steps(result);
  std::string text = fmt::format("{:g} step{}", steps, steps == 1 ? "" : "s");
  if (computed < steps) text += fmt::format(", {:g} computed and {:g} forecast,", computed, steps - computed);
  return text;
}

void print_image_summary(const std::vector<DrawnImage>& images, const ImageOutput& output, double load_ms,
                         Terminal& terminal) {
  const DrawnImage& first = images[0];
  const ImageResult& result = first.result;
  if (first.args.verbose)
    for (const DrawnImage& image : images) terminal.note("settings  {}", to_text(settings_json(image), -1));
  std::vector<double> computed_ms;
  for (size_t i = 0; i < result.step_ms.size(); ++i)
    if (result.computed[i] > 0) computed_ms.push_back(result.step_ms[i]);
  const std::string seeds = images.size() == 1 ? fmt::format("seed {}", first.seed())
                                               : fmt::format("seeds {} to {}", first.seed(), images.back().seed());
  terminal.note("{}: {}x{}, {}{}",
                output.is_stdout() ? "standard output" : fmt::format("{}", fmt::join(output.names(), ", ")),
                first.request.width, first.request.height, seeds,
                output.replaced().empty() ? "" : fmt::format("; replaced: {}", fmt::join(output.replaced(), ", ")));
  terminal.note("load {:.0f} ms, text {:.0f} ms, {} {:.0f} ms (median step {:.1f} ms), image {:.0f} ms", load_ms,
                result.text_ms, steps_text(result), result.loop_ms, median_of(computed_ms), result.decode_ms);
}

Json run_json(const std::vector<DrawnImage>& images, const ImageOutput& output, double load_ms) {
  const DrawnImage& first = images[0];
  const ImageResult& result = first.result;
  Json json = {{"images", output.names()},
               {"width", first.request.width},
               {"height", first.request.height},
               {"seed", first.seed()},
               {"seeds", Json::array()}};
  for (const DrawnImage& image : images) json["seeds"].push_back(image.seed());
  json["steps"] = result.step_ms.size();
  json["computed_steps"] = computed_steps(result);
  json["solver"] = result.solver;
  json["cache"] = result.cache;
  json["step_ms"] = result.step_ms;
  json["computed"] = result.computed;
  json["executed_share"] = result.executed_share;
  json["load_ms"] = load_ms;
  json["text_ms"] = result.text_ms;
  json["loop_ms"] = result.loop_ms;
  json["decode_ms"] = result.decode_ms;
  json["warnings"] = result.warnings;
  return json;
}

/// Returns width and height from the flags. 0: not given, or malformed, which is reported later.
std::pair<int64_t, int64_t> given_size(const ImageArgs& args) {
  ImageRequest size;
  if (!args.size.empty() && !read_size(args.size, size).ok()) return {};
  return {std::max(size.width, args.width.value_or(0)), std::max(size.height, args.height.value_or(0))};
}

/// Raises the engine's limits to the requested values: limits reserve addresses, not memory.
void fit_limits(const ImageArgs& args, size_t images, ImageOptions& options) {
  constexpr int64_t kMaxBatch = 64, kMaxSide = 16384;
  options.max_batch = std::clamp<int64_t>(2 * static_cast<int64_t>(images), options.max_batch, kMaxBatch);
  if (args.given.contains("max-side")) return;
  const auto [width, height] = given_size(args);
  options.max_side = std::clamp(std::max(width, height), options.max_side, kMaxSide);
}

Result<std::unique_ptr<ImageEngine>> open_image_engine(const std::string& path, const ImageOptions& options,
                                                       const ImageArgs& args, Terminal& terminal) {
  if (const std::string warning = memory_warning(path); !warning.empty())
    terminal.note("redline: warning: {}", warning);
  std::optional<Progress> loading;
  if (!args.quiet) loading.emplace("loading " + short_name(path), 0);
  Result<std::unique_ptr<ImageEngine>> engine = ImageEngine::open(path, options);
  if (engine.ok()) return engine;
  const auto [width, height] = given_size(args);
  return explain_kind(advise_image_memory(engine.status(), path, options, width, height), path, ModelUse::kImage);
}

/// Generates with a progress bar, saving the latents of every step if asked to.
Result<ImageResult> generate(ImageEngine& engine, const ImageArgs& args, const ImageRequest& request) {
  InterruptGuard guard;
  Status saved;
  std::optional<Progress> bar;
  auto result = engine.generate(request, [&](const ImageProgress& progress) {
    if (!bar && !args.quiet) bar.emplace("drawing", progress.steps, ProgressOptions{.unit = "step"});
    if (bar) bar->advance();
    if (!args.save_steps.empty()) saved = save_step(args.save_steps, progress);
    return saved.ok() && !InterruptGuard::interrupted();
  });
  REDLINE_TRY(saved);
  return result;
}

Status show_images(const ImageResult& result, ImageProtocol protocol, const Screen& screen, Terminal& terminal) {
  for (const RgbImage& image : result.images) {
    REDLINE_ASSIGN(const std::string shown, terminal_image(image, protocol, screen));
    terminal.write(shown);
  }
  return {};
}

Status run_image(const ImageArgs& given, Terminal& terminal) {
  ImageArgs args = given;
  if (!args.from.empty()) {
    REDLINE_ASSIGN(const ReadSettings settings, read_image_settings(args.from));
    REDLINE_TRY(args.repeat(settings.options).within(args.from));
    if (!settings.left_out.empty())
      terminal.note("redline: note: {}: settings without an equivalent: {}", args.from,
                    fmt::join(settings.left_out, ", "));
  }
  if (args.model.empty())
    return invalid_argument("MODEL is missing; usage: redline image [options] MODEL PROMPT{}",
                            args.from.empty() ? "" : fmt::format(" ({} does not name it)", args.from));
  REDLINE_ASSIGN(ImageOptions options, args.engine.options());
  REDLINE_ASSIGN(std::vector<std::string> prompts, prompts_of(args, terminal));
  const size_t num_images = std::max(prompts.size(), static_cast<size_t>(args.batch));
  fit_limits(args, num_images, options);
  std::vector<std::pair<std::string, double>> adapters;
  for (const std::string& text : args.lora) {
    auto& [file, weight] = adapters.emplace_back(parse_lora(text));
    file = image_adapter_file(file);
    // A LoRA file that is given twice is loaded once and applied with the sum of the weights.
    const auto is_same = [&](const auto& other) { return other.first == adapters.back().first; };
    if (std::any_of(adapters.begin(), adapters.end() - 1, is_same)) continue;
    const Result<int64_t> rank = adapter_rank(file);
    if (!rank.ok()) return explain_kind(rank.status(), file, ModelUse::kImageAdapter);
    options.max_adapter_rank += *rank;
  }
  REDLINE_ASSIGN(const std::string path, find_model(args.model));
  const Screen screen = Screen::of(terminal.output());
  REDLINE_ASSIGN(const ImageProtocol protocol, image_protocol(args.show, screen));
  REDLINE_ASSIGN(ImageOutput output, ImageOutput::open(args, num_images, terminal));
  if (!args.save_latents.empty()) REDLINE_TRY(prepare_output(args.save_latents));
  if (!args.save_steps.empty()) REDLINE_TRY(create_folder(args.save_steps));

  const auto opening = std::chrono::steady_clock::now();
  REDLINE_ASSIGN(const std::unique_ptr<ImageEngine> engine, open_image_engine(path, options, args, terminal));
  const double load_ms = ms_since(opening);
  std::set<std::string> loaded;
  for (const auto& [file, weight] : adapters)
    if (loaded.insert(file).second)
      REDLINE_TRY(explain_kind(engine->load_adapter(file, file), file, ModelUse::kImageAdapter));
  REDLINE_TRY(engine->set_adapters(adapters));
  REDLINE_ASSIGN(const ImageRequest request, image_request_of(args, *engine, std::move(prompts)));
  if (const std::string warning =
          image_memory_warning(engine->memory().arena, options, static_cast<int64_t>(num_images), request.width,
                               request.height, available_memory());
      !warning.empty())
    terminal.note("redline: warning: {}", warning);
  REDLINE_TRY(check_effects(args, *engine, request, terminal));
  REDLINE_ASSIGN(const ImageResult result, generate(*engine, args, request));

  for (const std::string& warning : result.warnings) terminal.note("redline: warning: {}", with_flag_names(warning));
  std::vector<DrawnImage> images;
  for (size_t i = 0; i < result.images.size(); ++i)
    images.push_back({args, request, result, engine->is_guidance_distilled(), i});
  Status written = output.write(images, terminal);
  if (!args.save_latents.empty()) {
    Status saved = write_npy(args.save_latents, result.latents.shape, result.latents.data);
    if (written.ok()) written = std::move(saved);
  }
  if (!args.quiet && !args.json && !output.is_stdout()) REDLINE_TRY(show_images(result, protocol, screen, terminal));
  REDLINE_TRY(written);
  if (args.json) return print_json(run_json(images, output, load_ms), terminal);
  if (!args.quiet) print_image_summary(images, output, load_ms, terminal);
  return {};
}

}  // namespace

Command image_command() {
  return make_command<ImageArgs, run_image>(
             "image", "generate an image from a text prompt",
             "MODEL is a diffusers folder of FLUX.1, SD3, PixArt-Sigma, Stable Diffusion 1.5 and 2, or SDXL. The file "
             "redline.json in it, if present, has the recommended settings; flags override them. MODEL may also be one "
             "file of Stable Diffusion 1, 2 or XL under its original names (.safetensors, .ckpt). The folders of its "
             "tokenizers, or a diffusers folder without weights, must lie beside such a file.\nThe image file stores "
             "its settings: under \"parameters\" and \"prompt\" as A1111's web UI and ComfyUI write them (EXIF in .jpg "
             "and .webp), and under \"redline\" for --from.",
             {"redline image assets/redline-shapes \"a large red house on a meadow\" --seed 6 -o house.png",
              "redline image --from house.png --steps 50 -o better.png",
              "redline image FLUX.1-schnell \"a lighthouse at night\" --size 768x512 --steps 4 --seed 7 -o "
              "lighthouse.jpg"})
      .in("generate", /*after_name=*/"chat");
}

}  // namespace redline::cli
