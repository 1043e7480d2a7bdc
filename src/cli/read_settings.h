// Settings that were read from an image file, of whatever program wrote it.
#pragma once

#include <string>
#include <vector>

#include "cli/json.h"

namespace redline::cli {

/// Settings that were read of an image, and what of them this command does not have.
struct ReadSettings {
  Json options = Json::object();        ///< by option of `redline image`
  std::vector<std::string> left_out{};  ///< "Clip skip: 2"
};

}  // namespace redline::cli
