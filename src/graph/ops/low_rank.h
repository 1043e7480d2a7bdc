#pragma once

#include "graph/adapters.h"

namespace redline {

struct LowRankAttrs {
  std::shared_ptr<AdapterSlot> slot;
};

/// y += sum over the slot's parts of scale * (x down^T) up^T, in place; nothing where the slot is empty.
///
/// inputs   x [rows, in_features] in the forms that the product beside it reads, that product's weight (looked at for
///          its type alone), y [rows, out_features]
/// outputs  y; x down^T [rows, max_rank], scaled
extern const OpDef kLowRank;

}  // namespace redline
