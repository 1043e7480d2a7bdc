#include "ranks/rank_group.h"

#include <algorithm>
#include <cstring>

namespace redline {

Status RankGroup::barrier() {
  if (size() == 1) return status();
  RankExchange& round = exchange("barrier");
  round.arrive(nullptr, 0);
  round.leave();
  return status();
}

template <class T>
Status RankGroup::all_reduce_of(std::span<T> values) {
  if (size() == 1) return status();
  RankExchange& round = exchange("all_reduce");
  // Other ranks read `values` while this one writes the sum.
  const std::vector<T> mine(values.begin(), values.end());
  round.arrive(mine.data(), static_cast<int64_t>(values.size_bytes()));
  const std::span<const void* const> parts = round.parts();
  for (size_t r = 0; r < parts.size(); ++r) {
    const T* part = static_cast<const T*>(parts[r]);
    for (size_t i = 0; i < values.size(); ++i) values[i] = r == 0 ? part[i] : values[i] + part[i];
  }
  round.leave();
  return status();
}
template Status RankGroup::all_reduce_of(std::span<float> values);
template Status RankGroup::all_reduce_of(std::span<double> values);

Status RankGroup::all_gather(std::span<const uint8_t> mine, std::span<uint8_t> all) {
  if (all.size() != mine.size() * static_cast<size_t>(size())) {
    Status status = invalid_argument("all_gather: {} bytes of {} ranks into {} bytes", mine.size(), size(), all.size());
    if (size() > 1) fail(status);  // other ranks may wait for this one
    return status;
  }
  if (size() == 1) {
    std::copy(mine.begin(), mine.end(), all.begin());
    return status();
  }
  RankExchange& round = exchange("all_gather");
  round.arrive(mine.data(), std::ssize(mine));
  uint8_t* to = all.data();
  for (const void* part : round.parts()) {
    if (!mine.empty()) std::memcpy(to, part, mine.size());
    to += mine.size();
  }
  round.leave();
  return status();
}

}  // namespace redline
