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

namespace {

/// Saves the values of a product's registers in `kept`, then poisons the registers until the product is done.
template <class T>
void poison(Lanes<T>* const (&registers)[32], T value, std::vector<std::pair<Lanes<T>*, Lanes<T>>>& kept) {
  for (Lanes<T>* const each : registers) {
    if (std::none_of(kept.begin(), kept.end(), [&](const auto& one) { return one.first == each; }))
      kept.emplace_back(each, *each);
    *each = Lanes<T>(value);
  }
}

}  // namespace

void Warp::issue(GroupProduct product, const Lanes<uint32_t> (&a)[4], uint64_t descriptor, bool accumulate) {
  std::copy_n(a, 4, product.a);
  product.descriptor = descriptor;
  product.accumulate = accumulate;
  // The group's other warps must use the same descriptor in their product of this index.
  auto& own = block_.products[static_cast<size_t>(index_)];
  for (size_t w = static_cast<size_t>(index_) / 4 * 4; w < static_cast<size_t>(index_) / 4 * 4 + 4; ++w)
    if (w < block_.products.size() && block_.products[w].size() > own.size() &&
        block_.products[w][own.size()] != product.descriptor)
      machine_.fail(
          internal("emulated device: warps {} and {} of a group multiply with different descriptors", index_, w));
  own.push_back(product.descriptor);
  issued_.push_back(product);
}

void Warp::group_multiply(const Lanes<uint32_t> (&a)[4], uint64_t descriptor, Lanes<float>* const* c, bool accumulate) {
  machine_.may_switch(block_, index_);
  GroupProduct product = {};
  std::copy_n(c, 32, product.c);
  poison(product.c, std::numeric_limits<float>::quiet_NaN(), sums_);
  issue(product, a, descriptor, accumulate);
}

void Warp::group_multiply(const Lanes<uint32_t> (&a)[4], uint64_t descriptor, Lanes<int32_t>* const* c,
                          bool accumulate) {
  machine_.may_switch(block_, index_);
  GroupProduct product = {};
  std::copy_n(c, 32, product.sums);
  poison(product.sums, std::numeric_limits<int32_t>::min(), integer_sums_);
  issue(product, a, descriptor, accumulate);
}

void Warp::group_wait() {
  const auto& own = block_.products[static_cast<size_t>(index_)];
  machine_.wait(block_, index_, {.kind = emu::WaitFor::kGroup, .target = own.size()});
  for (auto& [sum, value] : sums_) *sum = value;
  for (auto& [sum, value] : integer_sums_) *sum = value;
  sums_.clear();
  integer_sums_.clear();
  for (const GroupProduct& product : issued_) multiply(product);
  issued_.clear();
}

// Computes the product; sums over K in order, like mma_bf16() (fragment.h).
void Warp::multiply(const GroupProduct& product) {
  if (std::find(block_.unpublished.begin(), block_.unpublished.end(), 1) != block_.unpublished.end())
    machine_.fail(internal("emulated device: a product reads shared memory with stores that no fence has published"));
  if (product.c[0] == nullptr) return multiply_i8(product);
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

void Warp::multiply_i8(const GroupProduct& product) {
  uint8_t rows[64][32];
  if (!emu::read_operand(block_.shared, product.descriptor, rows)) {
    machine_.fail(internal("emulated device: the descriptor {:#x} is not that of a matrix in {} bytes of shared memory",
                           product.descriptor, block_.shared.size()));
    return;
  }
  // A row of A is in the registers of four lanes.
  int8_t left[16][32];
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 32; ++k)
      left[row][k] = static_cast<int8_t>(product.a[row / 8 + k / 16 * 2].v[row % 8 * 4 + k % 16 / 4] >> (k % 4 * 8));
  for (int lane = 0; lane < kWarpLanes; ++lane)
    for (int i = 0; i < 32; ++i) {
      const int row = lane / 4 + i % 4 / 2 * 8, col = i / 4 * 8 + lane % 4 * 2 + i % 2;
      int32_t& sum = product.sums[i]->v[lane];
      if (!product.accumulate) sum = 0;
      for (int k = 0; k < 32; ++k) sum += int32_t{left[row][k]} * int32_t{static_cast<int8_t>(rows[col][k])};
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
