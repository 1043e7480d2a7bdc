// Reads and writes images of any supported format.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "media/mask.h"
#include "media/rgb_image.h"

namespace redline {

/// A PNG, JPEG, WebP, GIF, BMP or TIFF file, by content; the first image of an animation. `text`, if given, receives
/// the text that PNG, JPEG and WebP files carry. Errors as the readers of the formats (decode_png, ...);
/// invalid_argument: another format.
Result<RgbImage> read_image(const std::string& path, ImageText* text = nullptr);

/// The same of the bytes of a file; `name` is for messages.
Result<RgbImage> decode_image(std::string_view bytes, const std::string& name, ImageText* text = nullptr);

/// The same with the transparency that the file has.
Result<AlphaImage> read_alpha_image(const std::string& path);
Result<AlphaImage> decode_alpha_image(std::string_view bytes, const std::string& name);

enum class ImageFormat : uint8_t { kPng, kJpeg, kWebp };
/// By the ending of a name: .png, .jpg, .jpeg, .webp, in any case; PNG for a name without an ending.
/// invalid_argument: another ending.
Result<ImageFormat> image_format_of(const std::string& path);
/// The bytes of a file. Errors as encode_png, encode_jpeg and encode_webp.
Result<std::string> encode_image(const RgbImage& image, ImageFormat format, const ImageText& text = {});

}  // namespace redline
