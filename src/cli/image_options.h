// Flags shared by all commands that open an image pipeline.
#pragma once

#include <charconv>

#include "cli/device_option.h"
#include "cli/option_rows.h"
#include "cli/peer_flags.h"
#include "redline/image.h"

namespace redline::cli {

struct ImageEngineArgs {
  ImageOptions values;  ///< the defaults, then what the flags say
  std::string vae_tile = "auto";

  void visit(OptionList& v) {
    add_option_rows(v, values, is_for_every_command);
    v(vae_tile, "vae-tile", "auto|off|N",
      "decode the image in blended tiles of N pixels: less memory; auto does so above 4 GiB");
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
    REDLINE_TRY(check_reference(values.use_interpreter, values.device));
    ImageOptions o = values;
    REDLINE_ASSIGN(o.vae_tile, read_vae_tile());
    return o;
  }
};

}  // namespace redline::cli
