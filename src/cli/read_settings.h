// Settings read from an image file of any program.
#pragma once

#include <string>
#include <vector>

#include "cli/json.h"

namespace redline::cli {

/// Settings from an image, and those that this command does not support.
struct ReadSettings {
  Json options = Json::object();        ///< by option of `redline image`
  std::vector<std::string> left_out{};  ///< settings without an option, such as "Clip skip: 2"
};

}  // namespace redline::cli
