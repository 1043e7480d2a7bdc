// Weights of a network as its files have them, for adapters that start from them.
#pragma once

#include "models/checkpoint/adapter_bank.h"
#include "models/checkpoint/checkpoint.h"

namespace redline {

/// Returns a function that reads weights. `open` returns the network's checkpoint as it is stored, and is called once,
/// at the first weight.
BaseWeights base_weights(std::function<Result<Checkpoint>()> open);

}  // namespace redline
