#include "media/webp.h"

#include <webp/decode.h>
#include <webp/encode.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "formats/byte_reader.h"
#include "media/exif.h"
#include "media/image_size.h"
#include "media/mask.h"

namespace redline {
namespace {

constexpr size_t kFileHead = 12, kChunkHead = 8;

void put_le(std::string& bytes, uint32_t value, int width) {
  for (int i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i) & 255);
}

uint32_t le32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[at + static_cast<size_t>(i)]);
  return value;
}

void put_chunk(std::string& bytes, std::string_view name, std::string_view data) {
  bytes += name;
  put_le(bytes, static_cast<uint32_t>(data.size()), 4);
  bytes += data;
  if (data.size() % 2 != 0) bytes += '\0';
}

/// Returns the data of the chunk `name`; "" if there is none.
std::string_view chunk(std::string_view file, std::string_view name) {
  for (size_t at = kFileHead; at + kChunkHead <= file.size();) {
    const size_t size = le32(file, at + 4);
    if (size > file.size() - at - kChunkHead) return {};
    if (file.substr(at, 4) == name) return file.substr(at + kChunkHead, size);
    at += kChunkHead + size + size % 2;
  }
  return {};
}

/// Returns the TIFF structure of the EXIF chunk; "" if there is none. Some writers begin the chunk with the head of a
/// JPEG's marker, which is skipped.
std::string_view webp_exif(std::string_view file) {
  constexpr std::string_view kJpegHead("Exif\0\0", 6);
  const std::string_view data = chunk(file, "EXIF");
  return data.starts_with(kJpegHead) ? data.substr(kJpegHead.size()) : data;
}

/// Returns the extended container around a plain file: VP8X with the size of the image, the image data, EXIF.
std::string with_exif(std::string_view plain, const RgbImage& image, const std::string& exif) {
  std::string head;
  constexpr uint32_t kHasExif = 8;
  put_le(head, kHasExif, 4);
  put_le(head, static_cast<uint32_t>(image.width - 1), 3);
  put_le(head, static_cast<uint32_t>(image.height - 1), 3);
  std::string body = "WEBP";
  put_chunk(body, "VP8X", head);
  body += plain.substr(kFileHead);
  put_chunk(body, "EXIF", exif);
  std::string file = "RIFF";
  put_le(file, static_cast<uint32_t>(body.size()), 4);
  return file + body;
}

}  // namespace

Result<std::string> encode_webp(const RgbImage& image, const ImageText& text) {
  if (image.width < 1 || image.height < 1 || image.width > WEBP_MAX_DIMENSION || image.height > WEBP_MAX_DIMENSION)
    return invalid_argument("WebP: an image of {} x {} pixels; expected 1 to {} each way", image.width, image.height,
                            WEBP_MAX_DIMENSION);
  if (static_cast<int64_t>(image.rgb.size()) != image.width * image.height * 3)
    return invalid_argument("WebP: {} bytes for {} x {} pixels of RGB", image.rgb.size(), image.width, image.height);
  constexpr float kQuality = 90;
  uint8_t* output = nullptr;
  const size_t size = WebPEncodeRGB(image.rgb.data(), static_cast<int>(image.width), static_cast<int>(image.height),
                                    static_cast<int>(image.width) * 3, kQuality, &output);
  if (size == 0) return out_of_memory("WebP: no memory to encode {} x {} pixels", image.width, image.height);
  std::string plain(reinterpret_cast<const char*>(output), size);
  WebPFree(output);
  const std::string exif = make_exif(text);
  return exif.empty() ? plain : with_exif(plain, image, exif);
}

namespace {

/// Decodes the first image of an animation and places it on the canvas, which is transparent elsewhere.
Result<RgbImage> decode_first_frame(std::string_view bytes, const WebPBitstreamFeatures& canvas,
                                    const std::string& name, std::vector<uint8_t>* alpha) {
  constexpr size_t kFrameHead = 16;  // place and size in 24 bits each, duration, flags
  const std::string_view frame = chunk(bytes, "ANMF");
  if (frame.size() < kFrameHead)
    return invalid_argument("{}: incomplete WebP: an animation without a whole image", name);
  const auto number = [&](size_t at) { return int64_t{le32(frame, at) & 0xffffff}; };
  const int64_t left = 2 * number(0), top = 2 * number(3), width = number(6) + 1, height = number(9) + 1;
  RgbImage image = {canvas.width, canvas.height, {}};
  REDLINE_TRY(check_image_size(name, image.width, image.height, std::ssize(bytes), kMaxImagePixels));
  if (left + width > image.width || top + height > image.height)
    return invalid_argument("{}: damaged WebP: an image of {} x {} pixels at {}, {} is outside its canvas", name, width,
                            height, left, top);
  // The frame as a file of its own.
  std::string head, body = "WEBP", file = "RIFF";
  constexpr uint32_t kHasAlpha = 16;
  put_le(head, kHasAlpha, 4);
  put_le(head, static_cast<uint32_t>(width - 1), 3);
  put_le(head, static_cast<uint32_t>(height - 1), 3);
  put_chunk(body, "VP8X", head);
  body += frame.substr(kFrameHead);
  put_le(file, static_cast<uint32_t>(body.size()), 4);
  file += body;
  int frame_width = 0, frame_height = 0;
  const std::unique_ptr<uint8_t, decltype(&WebPFree)> rgba(
      WebPDecodeRGBA(reinterpret_cast<const uint8_t*>(file.data()), file.size(), &frame_width, &frame_height),
      &WebPFree);
  if (!rgba || frame_width != width || frame_height != height)
    return invalid_argument("{}: damaged WebP: the first image of the animation cannot be decoded", name);
  std::vector<uint8_t> pixels(static_cast<size_t>(image.width * image.height * 4));
  for (int64_t row = 0; row < height; ++row)
    std::copy_n(rgba.get() + row * width * 4, width * 4, pixels.data() + ((top + row) * image.width + left) * 4);
  image.rgb = std::move(pixels);
  std::vector<uint8_t> transparency = take_alpha(image);
  const bool is_opaque = std::all_of(transparency.begin(), transparency.end(), [](uint8_t a) { return a == 255; });
  if (alpha && !is_opaque) *alpha = std::move(transparency);
  return image;
}

}  // namespace

Result<RgbImage> decode_webp(std::string_view bytes, const std::string& name, ImageText* text,
                             std::vector<uint8_t>* alpha) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  WebPBitstreamFeatures features;
  const VP8StatusCode known = WebPGetFeatures(data, bytes.size(), &features);
  if (known == VP8_STATUS_NOT_ENOUGH_DATA)
    return invalid_argument("{}: incomplete WebP: the file ends early, after {} bytes", name, bytes.size());
  if (known != VP8_STATUS_OK)
    return invalid_argument("{}: not a readable WebP{}", name, looks_like(bytes, static_cast<int64_t>(bytes.size())));
  if (features.has_animation) return decode_first_frame(bytes, features, name, alpha);
  RgbImage image;
  image.width = features.width;
  image.height = features.height;
  if (image.width * image.height > kMaxImagePixels)
    return invalid_argument("{}: {} x {} pixels; Redline reads up to {} of them", name, image.width, image.height,
                            kMaxImagePixels);
  const bool keeps_alpha = alpha && features.has_alpha;
  const int64_t channels = keeps_alpha ? 4 : 3;
  image.rgb.resize(static_cast<size_t>(image.width * image.height * channels));
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) return internal("{}: libwebp has another version than its header", name);
  config.output.colorspace = keeps_alpha ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = image.rgb.data();
  config.output.u.RGBA.stride = static_cast<int>(image.width * channels);
  config.output.u.RGBA.size = image.rgb.size();
  const VP8StatusCode decoded = WebPDecode(data, bytes.size(), &config);
  if (decoded == VP8_STATUS_NOT_ENOUGH_DATA || decoded == VP8_STATUS_SUSPENDED)
    return invalid_argument("{}: incomplete WebP: the file ends early, after {} bytes", name, bytes.size());
  if (decoded == VP8_STATUS_OUT_OF_MEMORY) return out_of_memory("{}: no memory to decode the image", name);
  if (decoded != VP8_STATUS_OK) return invalid_argument("{}: damaged WebP", name);
  const std::string_view exif = webp_exif(bytes);
  if (text) read_exif(exif, *text);
  const int orientation = exif_orientation(exif);
  if (keeps_alpha) {
    *alpha = take_alpha(image);
    apply_orientation(*alpha, image.width, image.height, orientation);
  }
  return apply_orientation(std::move(image), orientation);
}

}  // namespace redline
