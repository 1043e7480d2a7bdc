// Flags shared by all commands that open an image pipeline.
#pragma once

#include <charconv>

#include "cli/device_option.h"
#include "cli/peer_flags.h"
#include "cli/precision_option.h"
#include "redline/image.h"

namespace redline::cli {

struct ImageEngineArgs {
  std::string dtype = "auto";
  int threads = 0;
  int64_t max_side = 2048, front_blocks = 1, tail_blocks = 0;
  bool interpreter = false;
  std::string device = "auto";
  std::string transformer, vae, masks, trace, vae_tile = "auto";

  void visit(OptionList& v) {
    add_precision(v, dtype);
    v(threads, "threads", "N", "worker threads",
      {.letter = 't', .min = 0, .max = 1024, .shown_default = "REDLINE_THREADS, else all cores"});
    v(max_side, "max-side", "N", "largest width and height of an image, in pixels", {.min = 64, .max = 16384});
    v(front_blocks, "front-blocks", "N", "blocks that the step cache runs as its probe before it decides",
      {.min = 0, .max = 1000});
    v(tail_blocks, "tail-blocks", "N", "blocks that always run after those that the step cache may skip (dbcache's bn)",
      {.min = 0, .max = 1000});
    v(transformer, "transformer", "FILE",
      "FLUX.1 transformer in a single file, .safetensors or .gguf, instead of the folder's",
      {.names_file = true, .aliases = {"--diffusion-model"}});
    v(masks, "masks", "FILE", "step-cache masks that `redline calibrate` wrote",
      {.names_file = true, .shown_default = "the model's"});
    v(vae, "vae", "FOLDER", "VAE to use instead of the pipeline's own; a tiny one decodes many times as fast",
      {.names_file = true});
    v(vae_tile, "vae-tile", "auto|off|N",
      "decode the image in blended tiles of N pixels: less memory; auto does so above 4 GiB");
    add_device(v, device);
    v(interpreter, "interpreter", "", "run the reference interpreter (float64, op by op): slow");
    v(trace, "trace", "FILE", "write a timeline for Perfetto", {.names_file = true});
    add_renamed(v, "--probe-blocks", "--front-blocks");
  }

  Result<int64_t> read_vae_tile() const {
    if (vae_tile == "auto") return 0;
    if (vae_tile == "off") return -1;
    int64_t pixels = 0;
    const char* end = vae_tile.data() + vae_tile.size();
    const auto [stop, error] = std::from_chars(vae_tile.data(), end, pixels);
    if (error != std::errc() || stop != end || pixels < 1)
      return invalid_argument("unknown --vae-tile \"{}\"; expected auto, off or a number of pixels", vae_tile);
    return pixels;
  }

  Result<ImageOptions> options() const {
    ImageOptions o;
    REDLINE_ASSIGN(o.dtype, precision_from_name(dtype));
    o.threads = threads;
    o.max_side = max_side;
    REDLINE_ASSIGN(o.vae_tile, read_vae_tile());
    o.front_blocks = front_blocks;
    o.tail_blocks = tail_blocks;
    o.use_interpreter = interpreter;
    o.device = device;
    REDLINE_TRY(check_reference(interpreter, device));
    o.transformer_file = transformer;
    o.vae_folder = vae;
    o.step_cache_file = masks;
    o.trace_file = trace;
    return o;
  }
};

}  // namespace redline::cli
