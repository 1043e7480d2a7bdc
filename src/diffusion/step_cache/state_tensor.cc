#include "diffusion/step_cache/state_tensor.h"

#include <algorithm>

namespace redline {
namespace {

bool is_with(const StateView& view, const BufferMath* math) {
  return view.math() != nullptr && view.math()->device() == math->device();
}

void sum_on_host(std::span<const float> base, std::span<const float> weights, std::span<const StateView> tensors,
                 std::span<float> out) {
  constexpr int64_t kBlock = 1024;
  float sum[kBlock];
  for (int64_t from = 0; from < std::ssize(out); from += kBlock) {
    const int64_t n = std::min(kBlock, std::ssize(out) - from);
    std::fill_n(sum, n, 0.0F);
    for (size_t k = 0; k < weights.size(); ++k) {
      const float* tensor = tensors[k].host().data() + from;
      for (int64_t i = 0; i < n; ++i) sum[i] += weights[k] * tensor[i];
    }
    float* to = out.data() + from;
    if (base.empty()) {
      std::copy_n(sum, n, to);
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = base[from + i] + sum[i];
    }
  }
}

}  // namespace

void StateTensor::resize_like(const StateView& like) {
  if (size_ == like.size() && (buffer_ != nullptr) == (like.math() != nullptr)) return;
  *this = {};
  size_ = like.size();
  if (like.math() != nullptr && size_ > 0) {
    auto buffer = like.part().buffer->make_like(size_ * int64_t{sizeof(float)});
    if (buffer.ok()) buffer_ = std::move(buffer).value();
  }
  if (!buffer_) host_.resize(static_cast<size_t>(size_));
}

void StateTensor::assign(const StateView& from) {
  resize_like(from);
  if (size_ == 0) return;
  if (buffer_) {
    const BufferMath::Part part = from.part();
    buffer_->copy(0, *part.buffer, part.begin * int64_t{sizeof(float)}, size_ * int64_t{sizeof(float)});
    return;
  }
  const std::span<float> source = from.host();
  std::copy(source.begin(), source.end(), host_.begin());
}

void subtract(const StateView& a, const StateView& b, const StateView& out) {
  if (out.empty()) return;
  BufferMath* const math = out.math();
  if (math != nullptr && is_with(a, math) && is_with(b, math)) {
    // The products are exact and rounded once, like a - b. An error of the device is also an error of the next step,
    // which reports it.
    const float minus = -1;
    const BufferMath::Part parts[] = {b.part()};
    (void)math->weighted_sum(out.part(), a.part(), {&minus, 1}, parts, out.size());
    return;
  }
  const std::span<float> left = a.host(), right = b.host(), to = out.host();
  for (size_t i = 0; i < to.size(); ++i) to[i] = left[i] - right[i];
}

void weighted_sum(const StateView& base, std::span<const double> weights, std::span<const StateView> tensors,
                  const StateView& out) {
  if (out.empty()) return;
  std::vector<float> used;
  std::vector<StateView> read;
  for (size_t k = 0; k < weights.size(); ++k) {
    if (weights[k] == 0 || tensors[k].empty()) continue;
    used.push_back(static_cast<float>(weights[k]));
    read.push_back(tensors[k]);
  }
  BufferMath* const math = out.math();
  if (math != nullptr && (base.empty() || is_with(base, math)) &&
      std::all_of(read.begin(), read.end(), [&](const StateView& t) { return is_with(t, math); })) {
    std::vector<BufferMath::Part> parts;
    parts.reserve(read.size());
    for (const StateView& t : read) parts.push_back(t.part());
    (void)math->weighted_sum(out.part(), base.empty() ? BufferMath::Part{} : base.part(), used, parts, out.size());
    return;
  }
  sum_on_host(base.host(), used, read, out.host());
}

}  // namespace redline
