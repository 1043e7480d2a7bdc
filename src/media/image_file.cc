#include "media/image_file.h"

#include <filesystem>

#include "base/ascii.h"
#include "base/mapped_file.h"
#include "formats/byte_reader.h"
#include "media/bmp.h"
#include "media/gif.h"
#include "media/jpeg.h"
#include "media/png.h"
#include "media/tiff.h"
#include "media/webp.h"

namespace redline {

Result<RgbImage> read_image(const std::string& path, ImageText* text) {
  REDLINE_ASSIGN(const auto file, MappedFile::open(path));
  return decode_image(file->text(), path, text);
}

namespace {

using namespace std::string_view_literals;

Result<RgbImage> decode_any(std::string_view bytes, const std::string& name, ImageText* text,
                            std::vector<uint8_t>* alpha) {
  if (bytes.starts_with("\x89PNG")) return decode_png(bytes, name, text, alpha);
  if (bytes.starts_with("\xff\xd8")) return decode_jpeg(bytes, name, text);
  if (bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("WEBP")) return decode_webp(bytes, name, text, alpha);
  if (bytes.starts_with("GIF8")) return decode_gif(bytes, name, alpha);
  if (bytes.starts_with("BM")) return decode_bmp(bytes, name, alpha);
  for (const std::string_view magic : {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv})
    if (bytes.starts_with(magic)) return decode_tiff(bytes, name, alpha);
  return invalid_argument("{}: not a PNG, JPEG, WebP, GIF, BMP or TIFF image{}", name,
                          looks_like(bytes, std::ssize(bytes)));
}

}  // namespace

Result<RgbImage> decode_image(std::string_view bytes, const std::string& name, ImageText* text) {
  return decode_any(bytes, name, text, nullptr);
}

Result<AlphaImage> read_alpha_image(const std::string& path) {
  REDLINE_ASSIGN(const auto file, MappedFile::open(path));
  return decode_alpha_image(file->text(), path);
}

Result<AlphaImage> decode_alpha_image(std::string_view bytes, const std::string& name) {
  AlphaImage given;
  REDLINE_ASSIGN(given.image, decode_any(bytes, name, nullptr, &given.alpha));
  return given;
}

Result<ImageFormat> image_format_of(const std::string& path) {
  const std::string ending = ascii_lower(std::filesystem::path(path).extension().string());
  if (ending.empty() || ending == ".png") return ImageFormat::kPng;
  if (ending == ".jpg" || ending == ".jpeg") return ImageFormat::kJpeg;
  if (ending == ".webp") return ImageFormat::kWebp;
  return invalid_argument("{}: images are written as .png, .jpg or .webp", path);
}

Result<std::string> encode_image(const RgbImage& image, ImageFormat format, const ImageText& text) {
  switch (format) {
    case ImageFormat::kPng: return encode_png(image, text);
    case ImageFormat::kJpeg: return encode_jpeg(image, text);
    case ImageFormat::kWebp: return encode_webp(image, text);
  }
  return internal("no such image format");
}

}  // namespace redline
