// Settings read from an image file of any program.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/json.h"
#include "media/rgb_image.h"

namespace redline::cli {

/// Settings from an image, and those that this command does not support.
struct ReadSettings {
  Json options = Json::object();        ///< by option of `redline image`
  std::vector<std::string> left_out{};  ///< settings without an option, such as "Clip skip: 2"
};

/// The settings in an image file: those of settings_json, else those of A1111's "parameters", else those of ComfyUI's
/// "prompt". not_found: it has none. Errors as read_image.
Result<ReadSettings> read_settings(const std::string& path);
/// The same from the text of the image at `path`.
Result<ReadSettings> settings_of(const ImageText& text, const std::string& path);
/// The same from "parameters" alone; no options if there is nothing to read.
ReadSettings parse_parameters(const std::string& given);

}  // namespace redline::cli
