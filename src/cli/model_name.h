// Resolves the MODEL argument.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace redline::cli {

/// The path of a model: `name` as given, else assets/NAME of the current folder, else share/redline/NAME next to the
/// program's bin/. not_found: none of them exists; the message gives the closest name in the intended folder.
/// "hf:owner/name" is the model in the cache of the Hub, which is fetched if it is not there (cli/hub_pull.h).
Result<std::string> find_model(const std::string& name);

/// The paths of everything in the folders in which a bare name is looked up.
std::vector<std::string> bundled_models();

/// The last component of a path, or the name of a model in the cache of the Hub, for progress and captions.
std::string short_name(const std::string& path);

/// Of "NAME=PATH" both; of a path its last component without ".gguf", and the path.
std::pair<std::string, std::string> name_and_path(const std::string& text);

}  // namespace redline::cli
