// A map that keeps the most recently used plans.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <utility>

namespace redline::tiles {

/// A cache of plans. `Plan` frees its resources in its destructor.
template <class Key, class Plan>
class PlanCache {
 public:
  explicit PlanCache(size_t most) : most_(most) {}
  /// Returns the plan of a key. If it is missing, make(plan) fills it in and the least recently used plan is dropped.
  /// Valid until the next call.
  template <class Make>
  Plan& get(const Key& key, const Make& make) {
    if (const auto at = places_.find(key); at != places_.end()) {
      plans_.splice(plans_.begin(), plans_, at->second);
      return plans_.front().second;
    }
    if (plans_.size() >= most_) {
      places_.erase(plans_.back().first);
      plans_.pop_back();
    }
    plans_.emplace_front(std::piecewise_construct, std::forward_as_tuple(key), std::forward_as_tuple());
    places_[key] = plans_.begin();
    make(plans_.front().second);
    return plans_.front().second;
  }
  size_t size() const { return plans_.size(); }
  void clear() {
    places_.clear();
    plans_.clear();
  }

 private:
  using Plans = std::list<std::pair<Key, Plan>>;  // most recently used first
  size_t most_;
  Plans plans_;
  std::map<Key, typename Plans::iterator> places_;
};

}  // namespace redline::tiles
