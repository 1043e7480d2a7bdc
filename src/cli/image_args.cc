#include "cli/image_args.h"

#include <algorithm>

#include "cli/peer_flags.h"

namespace redline::cli {
namespace {

/// The options that describe an image: those that settings_json and parse_parameters give. The others say where a run
/// writes, what it prints and on what it computes, which the sender of an image must not choose for its receiver.
constexpr std::string_view kOfImages[] = {"MODEL",
                                          "PROMPT",
                                          "negative",
                                          "width",
                                          "height",
                                          "steps",
                                          "solver",
                                          "guidance",
                                          "true-cfg-scale",
                                          "cfg-scale",
                                          "seed",
                                          "cache",
                                          "guidance-interval",
                                          "quality",
                                          "max-sequence-length",
                                          "lora",
                                          "init-image",
                                          "steps-budget",
                                          "strength",
                                          "resize",
                                          "mask",
                                          "keep-unmasked",
                                          "dtype",
                                          "transformer",
                                          "vae",
                                          "vae-tile",
                                          "masks",
                                          "front-blocks",
                                          "tail-blocks",
                                          "init-noise",
                                          "prompt-embeds",
                                          "pooled-embeds"};

std::string argument_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump();
}

}  // namespace

void ImageArgs::visit(OptionList& v) {
  v.argument(model, "MODEL", "diffusers folder, or Stable Diffusion in one file",
             {.optional = true, .names_file = true, .aliases = {"-m", "--model"}});
  v.argument(prompt, "PROMPT",
             "text prompt; - reads standard input, one prompt per line, as does a pipe without PROMPT",
             {.optional = true, .aliases = {"-p", "--prompt"}});
  v(output, "output", "FILE",
    "image to write, .png, .jpg or .webp; several images get -1, -2, ... before the ending; - is standard output",
    {.letter = 'o', .names_file = true, .shown_default = "out.png, or out-2.png, ... if that exists"});
  v(from, "from", "FILE", "repeat the image of this file with the settings stored in it; other flags change them",
    {.names_file = true});
  v(negative, "negative", "TEXT", "negative prompt", {.aliases = {"--negative-prompt"}});
  v(size, "size", "WxH", "image size in pixels, for example 1024x768",
    {.shown_default = "that of --init-image, rounded to what the model takes, else the model's own"});
  v(width, "width", "N", "image width in pixels", {.letter = 'W', .min = 1, .not_with = {"size"}});
  v(height, "height", "N", "image height in pixels", {.letter = 'H', .min = 1, .not_with = {"size"}});
  v(steps, "steps", "N", "number of denoising steps",
    {.letter = 'n',
     .min = 1,
     .max = 1000,
     .shown_default = "the model's own",
     .aliases = {"--num-inference-steps", "--sample-steps"},
     .hint = "the number of steps is meant; --negative TEXT is the negative prompt"});
  v(guidance, "guidance", "G", "guidance scale",
    {.letter = 'g', .min = 0, .max = 100, .shown_default = "the model's own", .aliases = {"--guidance-scale"}});
  v(true_cfg_scale, "true-cfg-scale", "G",
    "classifier-free guidance scale of a guidance-distilled model (FLUX), with --negative; 1 is off",
    {.min = 0, .max = 100, .shown_default = "the model's own"});
  v(cfg_scale, "cfg-scale", "G",
    "classifier-free guidance scale of any model: --true-cfg-scale of a guidance-distilled one, else --guidance",
    {.min = 0, .max = 100, .shown_default = "the model's own"});
  v(guidance_interval, "guidance-interval", "A:B", "range of the steps, in 0..1, to which guidance is applied",
    {.shown_default = "0:1"});
  v(split_guidance, "split-guidance", "", "run the guidance branches one after the other: less memory");
  v(max_sequence_length, "max-sequence-length", "N", "maximum number of text tokens",
    {.min = 1, .max = 1024, .shown_default = "the model's own"});
  v(seed, "seed", "S",
    "same seed, same image; equal to diffusers' CPU generator; further images get S+1, S+2, ...; -1: random",
    {.letter = 's', .min = -1, .shown_default = "random, printed at the end"});
  v(batch, "batch", "B", "images per prompt",
    {.letter = 'b', .min = 1, .max = 64, .aliases = {"--batch-count", "--num-images-per-prompt"}});
  v(solver, "solver", "NAME", "scheduler to use instead of the model's own: flow-euler, euler, dpm++, unipc, lcm, ...",
    {.aliases = {"--sampling-method", "--sampler"}});
  v(cache, "cache", "RULE", "step cache: auto, none, or a rule with parameters (fbcache:threshold=0.1)",
    {.shown_default = "none"});
  v(quality, "quality", "Q", "step cache by quality: 1 computes every step, 0 as few as possible",
    {.min = 0, .max = 1});
  v(steps_budget, "steps-budget", "N", "step cache: compute N of the steps, forecast the others", {.min = 1});
  v(lora, "lora", "FILE[:WEIGHT]", "LoRA adapter to apply, with an optional weight", {.names_file = true});
  v(init_image, "init-image", "FILE", "start from this PNG, JPEG, WebP, GIF, BMP or TIFF of any size (image to image)",
    {.names_file = true, .aliases = {"-i", "--init-img", "--image"}});
  v(resize, "resize", "HOW", "how --init-image and --mask are brought to the size of the image",
    {.choices = {"stretch", "crop", "fit"}, .needs = {"init-image", "from"}});
  v(strength, "strength", "S", "with --init-image: fraction of the steps to run (default 0.8; 1 for inpainting models)",
    {.min = 0, .max = 1, .needs = {"init-image", "from"}});
  v(mask, "mask", "FILE", "with --init-image: white is regenerated, black is kept (inpainting)",
    {.names_file = true, .aliases = {"--mask-image"}, .needs = {"init-image", "from"}});
  v(keep_unmasked, "keep-unmasked", "HOW",
    "with --mask: leave the pixels outside the mask as they are, to the last bit; auto does so for a PNG",
    {.choices = {"auto", "on", "off"}, .needs = {"mask", "from"}});
  v(init_noise, "init-noise", "FILE", "standard normal noise, .npy [batch, channels, height/8, width/8]",
    {.names_file = true});
  v(save_latents, "save-latents", "FILE", "final latents as .npy, before the VAE's scale and shift are undone",
    {.names_file = true});
  v(save_steps, "save-steps", "FOLDER", "latents after every step, as step-001.npy, ...", {.names_file = true});
  v(prompt_embeds, "prompt-embeds", "FILE",
    "text embeddings to use instead of the text encoders, .npy [batch, tokens, width]", {.names_file = true});
  v(pooled_embeds, "pooled-embeds", "FILE", "pooled embeddings that go with --prompt-embeds, .npy [batch, width]",
    {.names_file = true, .needs = {"prompt-embeds"}});
  v(show, "show", "HOW", "how to show the image in the terminal",
    {.choices = {"auto", "none", "kitty", "iterm", "sixel", "blocks"}, .not_with = {"json", "quiet"}});
  v(quiet, "quiet", "", "no progress and no summary", {.letter = 'q'});
  v(verbose, "verbose", "", "begin the summary with the settings that the image file holds",
    {.letter = 'v', .not_with = {"json"}});
  v(json, "json", "", "print one JSON object about the run");
  engine.visit(v);
  add_image_peers(v);
}

Status ImageArgs::repeat(const Json& settings) {
  // Names of the settings that are not taken from the file, because given flags replace them.
  std::set<std::string> replaced = given;
  const auto replaces = [&](const std::vector<std::string>& by, const std::vector<std::string>& names) {
    for (const std::string& name : by)
      if (given.contains(name)) replaced.insert(names.begin(), names.end());
  };
  replaces({"size"}, {"width", "height"});
  replaces({"cfg-scale"}, {settings.contains("true-cfg-scale") ? "true-cfg-scale" : "guidance", "cfg-scale"});
  replaces({"guidance", "true-cfg-scale"}, {"cfg-scale"});
  replaces({"cache", "quality", "steps-budget"}, {"cache", "quality", "steps-budget"});
  replaces({"init-image"}, {"mask", "keep-unmasked", "resize"});
  OptionList options;
  visit(options);
  for (const auto& [name, value] : settings.items()) {
    if (name == "version" || replaced.contains(name)) continue;
    const Option* option = options.find(name);
    if (!option)
      return invalid_argument("the image was made with the option \"{}\", which this version does not have", name);
    if (std::find(std::begin(kOfImages), std::end(kOfImages), option->name) == std::end(kOfImages))
      return invalid_argument("the image file sets the option \"{}\", which is not a property of an image", name);
    for (const Json& one : value.is_array() ? value : Json::array({value}))
      if (Status read = option->read(argument_text(one)); !read.ok()) return std::move(read).within(name);
    given.insert(name);
  }
  return {};
}

}  // namespace redline::cli
