// Reads any bytes as the settings in an image, for `redline image --from` (the first byte chooses): A1111's parameters,
// ComfyUI's graph, Redline's own options, the TIFF structure of EXIF, or a whole PNG, JPEG or WebP file.
#include "cli/comfy_settings.h"
#include "cli/image_args.h"
#include "fuzz_input.h"
#include "media/exif.h"
#include "media/image_file.h"

using namespace redline;
using namespace redline::cli;

namespace {

/// Applies settings to the arguments of the command. They must not choose a file that it writes, another image to
/// repeat, or the device.
void repeat(const Json& options) {
  ImageArgs args;
  const Status status = args.repeat(options);
  require(status.ok() || !status.message().empty());
  const ImageArgs defaults;
  require(args.output == defaults.output && args.save_latents.empty() && args.save_steps.empty() && args.from.empty() &&
          args.engine.values.trace_file.empty() && args.engine.values.device == defaults.engine.values.device);
}

/// Reads the settings in the text of an image, and applies them.
void read(const ImageText& text) {
  const auto settings = settings_of(text, "x");
  if (!settings.ok()) return require(!settings.status().message().empty());
  require(settings->options.is_object());
  repeat(settings->options);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text = fuzz_text(data + 1, size - 1);
  ImageText found;
  switch (data[0] % 5) {
    case 0: found["parameters"] = text; break;
    case 1: found["prompt"] = text; break;
    case 2: found["redline"] = text; break;
    case 3: read_exif(text, found); break;
    default: (void)decode_image(text, "x", &found);
  }
  if (!found.empty()) read(found);
  return 0;
}
