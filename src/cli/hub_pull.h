// Downloads models for commands: with notes on standard error, and Ctrl-C, which keeps finished parts for the next
// pull.
#pragma once

#include <string>

#include "hub/pull.h"

namespace redline::cli {

/// Calls pull_model() with progress and notes on standard error. cancelled: Ctrl-C.
Result<PullResult> pull_for_command(const HubName& name, const HubSettings& settings, PullOptions options);

/// Returns the path of a model of the Hub: in the cache, after downloading it if it is missing. Errors as
/// parse_hub_name and pull_model.
Result<std::string> find_hub_model(const std::string& name);

}  // namespace redline::cli
