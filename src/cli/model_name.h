// Resolves the MODEL argument.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace redline::cli {

/// Returns the folders in which a program in `folder` looks up a bare name: assets/ of the current folder, models/
/// beside the program, share/redline/ of the prefix that it was installed to, and assets/ of the source tree that it
/// was built in.
std::vector<std::filesystem::path> model_roots_of(const std::filesystem::path& folder);

/// Returns the path of a model: `name` as given, else NAME in the first of these folders that has it. "hf:owner/name"
/// is the model in the cache of the Hub, which is downloaded if it is missing (cli/hub_pull.h). not_found: no folder
/// has it; the message gives the closest name in the intended folder, the bundled models, or the folders searched.
Result<std::string> find_model(const std::string& name);

/// Returns the paths of everything in the folders in which a bare name is looked up.
std::vector<std::string> bundled_models();

/// Returns the last component of a path, or the name of a model in the cache of the Hub, for progress and captions.
std::string short_name(const std::string& path);

/// Returns name and path: both parts of "NAME=PATH", or for a path its last component without ".gguf" and the path.
std::pair<std::string, std::string> name_and_path(const std::string& text);

}  // namespace redline::cli
