// Fetching models for commands: notes on standard error, and Ctrl-C, which keeps what is there for the next pull.
#pragma once

#include <string>

#include "hub/pull.h"

namespace redline::cli {

/// pull_model() with its progress and notes on standard error. cancelled: Ctrl-C.
Result<PullResult> pull_for_command(const HubName& name, const HubSettings& settings, PullOptions options);

/// The path of a model of the Hub: that in the cache, else it is fetched. Errors as parse_hub_name's and pull_model's.
Result<std::string> find_hub_model(const std::string& name);

}  // namespace redline::cli
