// Reads and writes images of any supported format.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "media/mask.h"
#include "media/rgb_image.h"

namespace redline {

/// Reads a PNG, JPEG, WebP, GIF, BMP or TIFF file; its content determines the format. An animation gives its first
/// image. `text`, if given, receives the text in PNG, JPEG and WebP files. Errors: those of decode_png and the other
/// readers; invalid_argument: another format.
Result<RgbImage> read_image(const std::string& path, ImageText* text = nullptr);

/// Decodes the bytes of a file like read_image(); `name` is for messages.
Result<RgbImage> decode_image(std::string_view bytes, const std::string& name, ImageText* text = nullptr);

/// Reads an image together with its transparency. Errors: those of read_image().
Result<AlphaImage> read_alpha_image(const std::string& path);
Result<AlphaImage> decode_alpha_image(std::string_view bytes, const std::string& name);

enum class ImageFormat : uint8_t { kPng, kJpeg, kWebp };
/// Returns the format for the ending of a name: .png, .jpg, .jpeg, .webp, in upper or lower case; PNG for a name
/// without an ending.
/// invalid_argument: another ending.
Result<ImageFormat> image_format_of(const std::string& path);
/// Returns the bytes of a file. Errors: those of encode_png, encode_jpeg and encode_webp.
Result<std::string> encode_image(const RgbImage& image, ImageFormat format, const ImageText& text = {});

}  // namespace redline
