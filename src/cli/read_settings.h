// Settings that were read from an image file, of whatever program wrote it.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/json.h"
#include "media/rgb_image.h"

namespace redline::cli {

/// Settings that were read of an image, and what of them this command does not have.
struct ReadSettings {
  Json options = Json::object();        ///< by option of `redline image`
  std::vector<std::string> left_out{};  ///< "Clip skip: 2"
};

/// The settings in an image file: those of settings_json, else those of A1111's "parameters", else those of ComfyUI's
/// "prompt". not_found: it has none. Errors as read_image.
Result<ReadSettings> read_settings(const std::string& path);
/// The same from the text of the image at `path`.
Result<ReadSettings> settings_of(const ImageText& text, const std::string& path);
/// The same from "parameters" alone; no options if there is nothing to read.
ReadSettings parse_parameters(const std::string& given);

}  // namespace redline::cli
