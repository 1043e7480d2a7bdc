// keep_alive of Ollama's API: how long a model stays loaded without requests.
#pragma once

#include <optional>

#include "server/endpoint.h"
#include "server/residency.h"

namespace redline::server {

const Field& keep_alive_field();

/// Returns seconds; 0: the model is unloaded, negative: it stays. Unset: the request has none, or models are never
/// unloaded, which the answer reports. 400: not a duration.
Outcome<std::optional<double>> keep_alive_of(Call& call);

}  // namespace redline::server
