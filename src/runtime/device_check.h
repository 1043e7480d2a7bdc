// A small computation that checks a tile device before it runs a model.
#pragma once

#include "backends/tiles/device_memory.h"
#include "base/worker_team.h"

namespace redline {

/// Runs a small graph (norm, products of bf16 and q8_0 weights, gated activation) on the device, with few and with many
/// rows, by launches and from captured launches, and compares the results with the float64 interpreter. A library or a
/// persistent step that fails is not used from then on, which is reported as a notice. Takes a few milliseconds on a
/// GPU. unsupported: a result is wrong, or a step fails; the message says which.
Status check_device(const std::shared_ptr<OpenDevice>& device, WorkerTeam& team);

}  // namespace redline
