#include "kernels/tiles/warp.h"

#include <algorithm>
#include <limits>
#include <mutex>

#include "kernels/emu/matrix_operand.h"

namespace redline::tiles {

void Warp::consumer_sync() {
  const uint32_t generation = block_.generation;
  if (++block_.arrived == kConsumerWarps) {
    block_.arrived = 0;
    ++block_.generation;
  }
  machine_.wait(block_, index_, {.kind = emu::WaitFor::kConsumers, .generation = generation});
}

void Warp::group_multiply(const Lanes<uint32_t> (&a)[4], uint64_t descriptor, Lanes<float>* const* c, bool accumulate) {
  machine_.may_switch(block_, index_);
  GroupProduct product = {};
  std::copy_n(a, 4, product.a);
  std::copy_n(c, 32, product.c);
  product.descriptor = descriptor;
  product.accumulate = accumulate;
  // What the group's other warps multiply with in the same place.
  auto& own = block_.products[static_cast<size_t>(index_)];
  for (size_t w = static_cast<size_t>(index_) / 4 * 4; w < static_cast<size_t>(index_) / 4 * 4 + 4; ++w)
    if (w < block_.products.size() && block_.products[w].size() > own.size() &&
        block_.products[w][own.size()] != descriptor)
      machine_.fail(
          internal("emulated device: warps {} and {} of a group multiply with different descriptors", index_, w));
  own.push_back(descriptor);
  for (Lanes<float>* const sum : product.c) {
    if (std::none_of(sums_.begin(), sums_.end(), [&](const auto& kept) { return kept.first == sum; }))
      sums_.emplace_back(sum, *sum);
    *sum = Lanes<float>(std::numeric_limits<float>::quiet_NaN());
  }
  issued_.push_back(product);
}

void Warp::group_wait() {
  const auto& own = block_.products[static_cast<size_t>(index_)];
  machine_.wait(block_, index_, {.kind = emu::WaitFor::kGroup, .target = own.size()});
  for (auto& [sum, value] : sums_) *sum = value;
  sums_.clear();
  for (const GroupProduct& product : issued_) multiply(product);
  issued_.clear();
}

// K in order, as mma_bf16() (fragment.h).
void Warp::multiply(const GroupProduct& product) {
  if (std::find(block_.unpublished.begin(), block_.unpublished.end(), 1) != block_.unpublished.end())
    machine_.fail(internal("emulated device: a product reads shared memory with stores that no fence has published"));
  float right[16][64];
  if (!emu::read_operand(block_.shared, product.descriptor, right)) {
    machine_.fail(internal("emulated device: the descriptor {:#x} is not that of a matrix in {} bytes of shared memory",
                           product.descriptor, block_.shared.size()));
    return;
  }
  for (int lane = 0; lane < kWarpLanes; ++lane)
    for (int half = 0; half < 2; ++half) {
      // Row lane / 4 + 8 half of A, of which four lanes have four columns each.
      float left[16];
      for (int t = 0; t < 4; ++t)
        for (int i = 0; i < 2; ++i)
          for (int high = 0; high < 2; ++high) {
            const uint32_t pair = product.a[2 * i + half].v[lane / 4 * 4 + t];
            left[2 * t + 8 * i + high] = __builtin_bit_cast(float, high != 0 ? pair & 0xffff0000u : pair << 16);
          }
      for (int tile = 0; tile < 8; ++tile)
        for (int low = 0; low < 2; ++low) {
          float& sum = product.c[4 * tile + 2 * half + low]->v[lane];
          if (!product.accumulate) sum = 0;
          for (int k = 0; k < 16; ++k) sum += left[k] * right[k][8 * tile + lane % 4 * 2 + low];
        }
    }
}

void Warp::barrier_wait(int barrier, uint32_t parity) {
  const bool is_loader = index_ == kConsumerWarps;
  if (is_loader && machine_.plants(emu::Fault::kEarlyPage)) return;
  if (!is_loader && machine_.plants(emu::Fault::kWrongParity)) parity ^= 1;
  machine_.wait(block_, index_, {.kind = emu::WaitFor::kBarrier, .barrier = barrier, .parity = parity});
  if (!machine_.has_expired() || block_.barriers[static_cast<size_t>(barrier)].phase % 2 != parity) return;
  abandoned_ = true;
  report_hang(
      {HangReport::kBarrier, block_number_, task_, static_cast<uint32_t>(barrier), static_cast<uint64_t>(index_)});
}

void Warp::report_hang(const HangReport& what) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (report_->kind == HangReport::kNothing) *report_ = what;
}

}  // namespace redline::tiles
