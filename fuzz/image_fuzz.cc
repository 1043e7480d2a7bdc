// Reads any bytes as an image of every format, and as the image or mask of a request.
#include "base/base64.h"
#include "fuzz_input.h"
#include "media/bmp.h"
#include "media/gif.h"
#include "media/image_file.h"
#include "media/jpeg.h"
#include "media/mask.h"
#include "media/png.h"
#include "media/tiff.h"
#include "media/webp.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ImageText text;
  std::vector<uint8_t> alpha;
  const std::string_view bytes = fuzz_text(data, size);
  for (const auto& image :
       {decode_png(bytes, "x", &text), decode_jpeg(bytes, "x", &text), decode_webp(bytes, "x", &text, &alpha),
        decode_gif(bytes, "x", &alpha), decode_bmp(bytes, "x", &alpha), decode_tiff(bytes, "x", &alpha)}) {
    if (!image.ok()) {
      require(!image.status().message().empty());
      continue;
    }
    require(static_cast<int64_t>(image->rgb.size()) == image->width * image->height * 3);
    touch(image->rgb.data(), static_cast<int64_t>(image->rgb.size()));
  }
  // An image or mask of a request may be in Base64 and may have transparency.
  const auto decoded = from_base64(fuzz_text(data, size));
  const auto given = decode_alpha_image(decoded ? *decoded : fuzz_text(data, size), "x");
  if (!given.ok()) return 0;
  const auto pixels = static_cast<size_t>(given->image.width * given->image.height);
  require(given->image.rgb.size() == 3 * pixels && (given->alpha.empty() || given->alpha.size() == pixels));
  require(gray_mask(*given).rgb.size() == 3 * pixels);
  if (const auto region = transparent_region(*given)) require(region->rgb.size() == 3 * pixels);
  return 0;
}
