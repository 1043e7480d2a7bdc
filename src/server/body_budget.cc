#include "server/body_budget.h"

#include <utility>
#include <vector>

namespace redline::server {

int64_t BodyBudget::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::shared_ptr<BodyBudget::Lease> BodyBudget::open(const std::string& client, std::function<void()> taken_away) {
  const std::lock_guard lock(mutex_);
  const uint64_t number = next_number_++;
  entries_[number] = {.client = client, .taken_away = std::move(taken_away)};
  return std::make_shared<Lease>(shared_from_this(), number);
}

void BodyBudget::add(Entry& entry, int64_t bytes) {
  if (bytes == 0) return;
  entry.bytes += bytes;
  used_ += bytes;
  const auto total = of_client_.try_emplace(entry.client, 0).first;
  total->second += bytes;
  if (total->second == 0) of_client_.erase(total);
}

bool BodyBudget::grow(uint64_t number, int64_t bytes) {
  std::vector<std::function<void()>> lost;
  bool fits = false;
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_.at(number);
    if (entry.is_taken_away) return false;
    while (used_ + bytes > max_bytes_) {
      const auto own = of_client_.find(entry.client);
      auto taken_away = take_from_largest(entry.client, (own == of_client_.end() ? 0 : own->second) + bytes);
      if (!taken_away) break;
      if (*taken_away) lost.push_back(std::move(*taken_away));
    }
    fits = used_ + bytes <= max_bytes_;
    if (fits) add(entry, bytes);
  }
  for (const auto& taken_away : lost) taken_away();
  return fits;
}

std::optional<std::function<void()>> BodyBudget::take_from_largest(const std::string& except, int64_t own) {
  Entry* victim = nullptr;
  int64_t most = own;
  for (auto& [number, entry] : entries_) {
    if (entry.is_read || entry.bytes == 0 || entry.client == except) continue;
    const int64_t total = of_client_.at(entry.client);
    if (total < most || (total == most && (!victim || entry.bytes <= victim->bytes))) continue;
    victim = &entry;
    most = total;
  }
  if (!victim) return std::nullopt;
  add(*victim, -victim->bytes);
  victim->is_taken_away = true;
  return std::exchange(victim->taken_away, nullptr);
}

bool BodyBudget::keep(uint64_t number) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.at(number);
  entry.is_read = true;
  return !entry.is_taken_away;
}

bool BodyBudget::is_taken_away(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return entries_.at(number).is_taken_away;
}

void BodyBudget::give_back(uint64_t number) {
  Entry gone;  // is destroyed without the mutex
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(number);
  add(found->second, -found->second.bytes);
  gone = std::move(found->second);
  entries_.erase(found);
}

}  // namespace redline::server
