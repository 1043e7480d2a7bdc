#include "kernels/tiles/warp.h"

namespace redline::tiles {

void Warp::consumer_sync() {
  const uint32_t generation = block_.generation;
  if (++block_.arrived == kConsumerWarps) {
    block_.arrived = 0;
    ++block_.generation;
  }
  machine_.wait(block_, index_, {.kind = emu::WaitFor::kConsumers, .generation = generation});
}

void Warp::barrier_wait(int barrier, uint32_t parity) {
  const bool is_loader = index_ == kConsumerWarps;
  if (is_loader && machine_.plants(emu::Fault::kEarlyPage)) return;
  if (!is_loader && machine_.plants(emu::Fault::kWrongParity)) parity ^= 1;
  machine_.wait(block_, index_, {.kind = emu::WaitFor::kBarrier, .barrier = barrier, .parity = parity});
  if (machine_.has_expired() && block_.barriers[static_cast<size_t>(barrier)].phase % 2 == parity) abandoned_ = true;
}

}  // namespace redline::tiles
