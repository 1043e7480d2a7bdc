// Reads the settings that Redline, A1111's web UI or ComfyUI has stored in an image file.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/json.h"
#include "media/rgb_image.h"

namespace redline::cli {

/// The settings in an image.
struct ReadSettings {
  Json options = Json::object();        ///< values by name of an option or argument of `redline image`
  std::vector<std::string> left_out{};  ///< settings without such an option: "Clip skip: 2"
};

/// Reads the settings in an image file: those of settings_json, else A1111's "parameters", else ComfyUI's "prompt".
/// not_found: the file holds none. invalid_argument: the text under "redline" is not a JSON object. Errors as
/// read_image.
Result<ReadSettings> read_image_settings(const std::string& path);
/// Reads the settings in the text of an image, in the order of read_image_settings() and with its errors. `path` is the
/// name of the image in messages.
Result<ReadSettings> settings_of(const ImageText& text, const std::string& path);
/// Parses the text of A1111's "parameters". Returns no options if no line begins with "Steps: ".
ReadSettings parse_parameters(const std::string& given);

}  // namespace redline::cli
