// Weights of a network as its files have them, for adapters that start from them.
#pragma once

#include "models/checkpoint/adapter_bank.h"
#include "models/checkpoint/checkpoint.h"

namespace redline {

/// `open` gives the network's checkpoint as it is stored; it is called once, at the first weight.
BaseWeights base_weights(std::function<Result<Checkpoint>()> open);

}  // namespace redline
