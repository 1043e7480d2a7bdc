// Any bytes as an image of every format.
#include "fuzz_input.h"
#include "media/bmp.h"
#include "media/gif.h"
#include "media/jpeg.h"
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
  return 0;
}
