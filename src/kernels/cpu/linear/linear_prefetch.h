// Memory that is read after a product and prefetched while the product computes.
#pragma once

#include "kernels/cpu/linear/linear_end.h"

namespace redline {

/// The LinearArgs::end of linear_q8, which has no epilogue. With several rows linear_q8 leaves memory idle, so it
/// prefetches these pieces into the L2 cache, spread over the whole product.
struct LinearPrefetch : LinearEnd {
  struct Piece {
    const uint8_t* data;
    int64_t bytes;
  };
  const Piece* pieces = nullptr;
  int64_t count = 0;
};

}  // namespace redline
