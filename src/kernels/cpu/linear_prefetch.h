// Memory that is read after a product, which is prefetched while the product computes.
#pragma once

#include "kernels/cpu/linear_end.h"

namespace redline {

/// LinearArgs::end of linear_q8, which has no epilogue: with several rows it leaves memory idle, so it prefetches these
/// pieces into the L2 cache, spread over all of it.
struct LinearPrefetch : LinearEnd {
  struct Piece {
    const uint8_t* data;
    int64_t bytes;
  };
  const Piece* pieces = nullptr;
  int64_t count = 0;
};

}  // namespace redline
