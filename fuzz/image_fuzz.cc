// Reads any bytes as a PNG, JPEG or WebP image.
#include "fuzz_input.h"
#include "media/jpeg.h"
#include "media/png.h"
#include "media/webp.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ImageText text;
  for (const auto& image :
       {decode_png(fuzz_text(data, size), "x", &text), decode_jpeg(fuzz_text(data, size), "x", &text),
        decode_webp(fuzz_text(data, size), "x", &text)}) {
    if (!image.ok()) {
      require(!image.status().message().empty());
      continue;
    }
    require(static_cast<int64_t>(image->rgb.size()) == image->width * image->height * 3);
    touch(image->rgb.data(), static_cast<int64_t>(image->rgb.size()));
  }
  return 0;
}
