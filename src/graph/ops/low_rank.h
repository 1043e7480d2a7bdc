#pragma once

#include "graph/adapters.h"

namespace redline {

struct LowRankAttrs {
  std::shared_ptr<AdapterSlot> slot;
};

/// y += sum over the slot's parts of scale * (x down^T) up^T, in place; no-op when the slot is empty.
///
/// inputs   x [rows, in_features] in the layouts that the base linear reads, the weight of that linear (only its
///          type is used), y [rows, out_features]
/// outputs  y; x down^T [rows, max_rank], scaled
extern const OpDef kLowRank;

}  // namespace redline
