// redline image: generates an image from a text prompt.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include <fmt/ranges.h>

#include "base/output_file.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/image_options.h"
#include "cli/json.h"
#include "cli/lora_option.h"
#include "cli/model_name.h"
#include "cli/terminal_image.h"
#include "formats/image_file.h"
#include "formats/npy.h"
#include "formats/png.h"
#include "redline/image.h"

namespace redline::cli {
namespace {

struct ImageArgs {
  std::string model, prompt;
  std::string output = "out.png", negative, size, solver, cache, init_noise, save_latents, save_steps, prompt_embeds,
              pooled_embeds, init_image, mask, show = "auto";
  std::optional<int64_t> steps, max_sequence_length, steps_budget;
  std::optional<float> guidance, true_guidance, quality, strength;
  std::optional<uint64_t> seed;
  std::string guidance_interval;
  std::vector<std::string> lora;
  int64_t batch = 1;
  bool split_guidance = false, quiet = false, json = false;
  ImageEngineArgs engine;

  void visit(OptionList& v) {
    v.argument(model, "MODEL", "diffusers folder", {.names_file = true});
    v.argument(prompt, "PROMPT", "text prompt; - reads standard input, one prompt per line");
    v(output, "output", "FILE", "PNG to write; several images get -1, -2, ... before the extension",
      {.letter = 'o', .names_file = true});
    v(negative, "negative", "TEXT", "negative prompt");
    v(size, "size", "WxH", "image size in pixels, for example 1024x768", {.shown_default = "the model's own"});
    v(steps, "steps", "N", "number of denoising steps",
      {.letter = 'n', .min = 1, .max = 1000, .shown_default = "the model's own"});
    v(guidance, "guidance", "G", "guidance scale",
      {.letter = 'g', .min = 0, .max = 100, .shown_default = "the model's own"});
    v(true_guidance, "true-guidance", "G",
      "classifier-free guidance scale of a guidance-distilled model (FLUX), with --negative; 1 is off",
      {.min = 0, .max = 100, .shown_default = "the model's own"});
    v(guidance_interval, "guidance-interval", "A:B", "range of the steps, in 0..1, to which guidance is applied",
      {.shown_default = "0:1"});
    v(split_guidance, "split-guidance", "", "run the guidance branches one after the other: less memory");
    v(max_sequence_length, "max-sequence-length", "N", "maximum number of text tokens",
      {.min = 1, .max = 1024, .shown_default = "the model's own"});
    v(seed, "seed", "S", "same seed, same image; equal to diffusers' CPU generator",
      {.shown_default = "random, printed at the end"});
    v(batch, "batch", "B", "images per prompt", {.letter = 'b', .min = 1, .max = 64});
    v(solver, "solver", "NAME",
      "scheduler to use instead of the model's own: flow-euler, euler, dpm++, unipc, lcm, ...");
    v(cache, "cache", "RULE", "step cache: auto, none, or a rule with parameters (fbcache:threshold=0.1)",
      {.shown_default = "none"});
    v(quality, "quality", "Q", "step cache by quality: 1 computes every step, 0 as few as possible",
      {.min = 0, .max = 1});
    v(steps_budget, "steps-budget", "N", "step cache: compute N of the steps, forecast the others", {.min = 1});
    v(lora, "lora", "FILE[:WEIGHT]", "LoRA adapter to apply, with an optional weight", {.names_file = true});
    v(init_image, "init-image", "FILE", "start from this PNG (image to image)", {.names_file = true});
    v(strength, "strength", "S",
      "with --init-image: fraction of the steps to run (default 0.8; 1 for inpainting models)", {.min = 0, .max = 1});
    v(mask, "mask", "FILE", "with --init-image: white is regenerated, black is kept (inpainting)",
      {.names_file = true});
    v(init_noise, "init-noise", "FILE", "standard normal noise, .npy [batch, channels, height/8, width/8]",
      {.names_file = true});
    v(save_latents, "save-latents", "FILE", "final latents as .npy, before the VAE's scale and shift are undone",
      {.names_file = true});
    v(save_steps, "save-steps", "FOLDER", "latents after every step, as step-001.npy, ...", {.names_file = true});
    v(prompt_embeds, "prompt-embeds", "FILE",
      "text embeddings to use instead of the text encoders, .npy [batch, tokens, width]", {.names_file = true});
    v(pooled_embeds, "pooled-embeds", "FILE", "pooled embeddings that go with --prompt-embeds, .npy [batch, width]",
      {.names_file = true});
    v(show, "show", "HOW", "how to show the image in the terminal",
      {.choices = {"auto", "none", "kitty", "iterm", "sixel", "blocks"}});
    v(quiet, "quiet", "", "no progress and no summary", {.letter = 'q'});
    v(json, "json", "", "print one JSON object about the run");
    engine.visit(v);
  }
};

Status read_size(const std::string& text, ImageRequest& request) {
  int64_t width = 0, height = 0;
  char x = 0, rest = 0;
  if (std::sscanf(text.c_str(), "%ld%c%ld%c", &width, &x, &height, &rest) != 3 || (x != 'x' && x != 'X') || width < 1 ||
      height < 1)
    return invalid_argument("--size \"{}\" is not WIDTHxHEIGHT, as 1024x768", text);
  request.width = width;
  request.height = height;
  return {};
}

Status read_interval(const std::string& text, ImageRequest& request) {
  char rest = 0;
  if (std::sscanf(text.c_str(), "%lf:%lf%c", &request.guidance_begin, &request.guidance_end, &rest) != 2 ||
      !(request.guidance_begin >= 0 && request.guidance_begin <= request.guidance_end && request.guidance_end <= 1))
    return invalid_argument("--guidance-interval \"{}\" is not A:B with 0 <= A <= B <= 1", text);
  return {};
}

/// "out.png" -> "out-2.png".
std::string numbered(const std::string& path, size_t number) {
  const size_t dot = path.rfind('.'), slash = path.rfind('/');
  const size_t at = dot != std::string::npos && (slash == std::string::npos || dot > slash) ? dot : path.size();
  return fmt::format("{}-{}{}", path.substr(0, at), number, path.substr(at));
}

/// Files that the request refers to.
struct RequestFiles {
  FloatArray init_noise, prompt_embeds, pooled_embeds;
  RgbImage init_image, mask;

  Status read(const ImageArgs& args, ImageRequest& request) {
    const auto array = [](const std::string& path, FloatArray& to, const FloatArray*& pointer) -> Status {
      if (path.empty()) return {};
      REDLINE_ASSIGN(NpyArray read, read_npy(path));
      to.shape = std::move(read.shape);
      to.data = std::move(read.values);
      pointer = &to;
      return {};
    };
    const auto picture = [](const std::string& path, RgbImage& to, const RgbImage*& pointer) -> Status {
      if (path.empty()) return {};
      REDLINE_ASSIGN(to, read_image(path));
      pointer = &to;
      return {};
    };
    REDLINE_TRY(array(args.init_noise, init_noise, request.init_noise));
    REDLINE_TRY(array(args.prompt_embeds, prompt_embeds, request.prompt_embeds));
    REDLINE_TRY(array(args.pooled_embeds, pooled_embeds, request.pooled_embeds));
    REDLINE_TRY(picture(args.init_image, init_image, request.init_image));
    return picture(args.mask, mask, request.mask);
  }
};

Result<ImageRequest> request_of(const ImageArgs& args, const ImageRequest& defaults, Terminal& terminal) {
  ImageRequest r = defaults;
  if (args.prompt == "-") {
    REDLINE_ASSIGN(const std::string text, terminal.read_input());
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      if (end > begin) r.prompts.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    if (r.prompts.empty()) return invalid_argument("standard input holds no prompt");
  } else {
    r.prompts = {args.prompt};
  }
  if (!args.size.empty()) REDLINE_TRY(read_size(args.size, r));
  if (!args.guidance_interval.empty()) REDLINE_TRY(read_interval(args.guidance_interval, r));
  if (!args.negative.empty()) r.negative_prompt = args.negative;
  if (args.steps) r.num_inference_steps = *args.steps;
  if (args.guidance) r.guidance_scale = static_cast<double>(*args.guidance);
  if (args.true_guidance) r.true_cfg_scale = static_cast<double>(*args.true_guidance);
  if (args.max_sequence_length) r.max_sequence_length = *args.max_sequence_length;
  if (args.strength) r.strength = static_cast<double>(*args.strength);
  if (args.quality) r.quality = static_cast<double>(*args.quality);
  if (args.steps_budget) r.steps_budget = *args.steps_budget;
  r.seed = args.seed ? *args.seed : std::random_device()();
  r.batch = args.batch;
  r.split_guidance = args.split_guidance;
  r.solver = args.solver;
  r.cache = args.cache;
  r.keep_latents = !args.save_latents.empty();
  return r;
}

Status save_step(const std::string& folder, const ImageProgress& progress) {
  return write_npy(fmt::format("{}/step-{:03}.npy", folder, progress.step), progress.latents->shape,
                   progress.latents->data);
}

/// The generation settings stored in a PNG, under the key that other programs read.
PngText settings_of(const ImageRequest& r, uint64_t seed, size_t picture) {
  std::string text = r.prompts[r.prompts.size() == 1 ? 0 : picture];
  if (!r.negative_prompt.empty()) text += "\nNegative prompt: " + r.negative_prompt;
  return {{"parameters",
           fmt::format("{}\nSteps: {}, Size: {}x{}, Seed: {}", text, r.num_inference_steps, r.width, r.height, seed)}};
}

Status run_image(const ImageArgs& args, Terminal& terminal) {
  REDLINE_ASSIGN(ImageOptions options, args.engine.options());
  std::vector<std::pair<std::string, double>> adapters;
  for (const std::string& text : args.lora) {
    adapters.push_back(parse_lora(text));
    REDLINE_ASSIGN(const int64_t rank, adapter_rank(adapters.back().first));
    options.max_adapter_rank += rank;
  }
  REDLINE_ASSIGN(const std::string path, find_model(args.model));
  const Screen screen = Screen::of(terminal.output());
  REDLINE_ASSIGN(const ImageProtocol protocol, image_protocol(args.show, screen));
  // Reported before minutes of generation, not after.
  for (const std::string& file : {args.output, args.save_latents})
    if (!file.empty()) REDLINE_TRY(OutputFile::create(file));
  const auto opened = std::chrono::steady_clock::now();
  REDLINE_ASSIGN(const std::unique_ptr<ImageEngine> engine, ImageEngine::open(path, options));
  const double load_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - opened).count();
  for (const auto& [file, weight] : adapters) REDLINE_TRY(engine->load_adapter(file, file));
  REDLINE_TRY(engine->set_adapters(adapters));
  REDLINE_ASSIGN(ImageRequest request, request_of(args, engine->defaults(), terminal));
  RequestFiles files;
  REDLINE_TRY(files.read(args, request));

  InterruptGuard guard;
  Status saved;
  std::unique_ptr<Progress> bar;
  auto result = engine->generate(request, [&](const ImageProgress& progress) {
    if (!bar && !args.quiet) bar = std::make_unique<Progress>("drawing", progress.steps);
    if (bar) bar->advance();
    if (!args.save_steps.empty()) saved = save_step(args.save_steps, progress);
    return saved.ok() && !InterruptGuard::interrupted();
  });
  bar.reset();
  REDLINE_TRY(saved);
  REDLINE_TRY(result);
  for (const std::string& warning : result->warnings) terminal.note("warning: {}", warning);
  if (!args.save_latents.empty())
    REDLINE_TRY(write_npy(args.save_latents, result->latents.shape, result->latents.data));
  std::vector<std::string> written;
  for (size_t i = 0; i < result->pictures.size(); ++i) {
    written.push_back(result->pictures.size() == 1 ? args.output : numbered(args.output, i + 1));
    REDLINE_TRY(write_png(written.back(), result->pictures[i], settings_of(request, request.seed, i)));
    if (args.quiet || args.json) continue;
    REDLINE_ASSIGN(const std::string shown, terminal_image(result->pictures[i], protocol, screen));
    terminal.write(shown);
  }
  if (args.json) {
    Json json;
    json["pictures"] = written;
    json["width"] = request.width;
    json["height"] = request.height;
    json["seed"] = request.seed;
    json["steps"] = result->step_ms.size();
    json["step_ms"] = result->step_ms;
    json["computed"] = result->computed;
    json["executed_share"] = result->executed_share;
    json["load_ms"] = load_ms;
    json["text_ms"] = result->text_ms;
    json["loop_ms"] = result->loop_ms;
    json["decode_ms"] = result->decode_ms;
    json["warnings"] = result->warnings;
    return print_json(json, terminal);
  }
  if (args.quiet) return {};
  std::vector<double> sorted = result->step_ms;
  std::sort(sorted.begin(), sorted.end());
  terminal.note("{}: {}x{}, seed {}", fmt::join(written, ", "), request.width, request.height, request.seed);
  terminal.note("load {:.0f} ms, text {:.0f} ms, {} steps {:.0f} ms (median step {:.1f} ms), image {:.0f} ms", load_ms,
                result->text_ms, sorted.size(), result->loop_ms, sorted.empty() ? 0 : sorted[sorted.size() / 2],
                result->decode_ms);
  return {};
}

}  // namespace

Command image_command() {
  return make_command<ImageArgs, run_image>(
      "image", "generate an image from a text prompt",
      "MODEL is a diffusers folder: FLUX.1, SD3, PixArt-Sigma, Stable Diffusion 1.5 and 2, or SDXL. Its redline.json, "
      "if present, holds the recommended settings; flags override it.",
      {"redline image assets/redline-shapes \"a large red circle on a blue background\" -o circle.png",
       "redline image FLUX.1-schnell \"a lighthouse at night\" --size 768x512 --steps 4 --seed 7"});
}

}  // namespace redline::cli
