#include "media/image_size.h"

namespace redline {

Status check_image_size(const std::string& name, int64_t width, int64_t height, int64_t file_bytes,
                        int64_t max_pixels_per_byte) {
  if (width < 1 || height < 1) return invalid_argument("{}: an image of {} x {} pixels", name, width, height);
  if (width > kMaxImageSide || height > kMaxImageSide || width * height > kMaxImagePixels)
    return invalid_argument("{}: {} x {} pixels; Redline reads up to {} of them, and sides up to {}", name, width,
                            height, kMaxImagePixels, kMaxImageSide);
  if (width * height / max_pixels_per_byte > file_bytes)
    return invalid_argument("{}: {} bytes cannot hold {} x {} pixels", name, file_bytes, width, height);
  return {};
}

}  // namespace redline
