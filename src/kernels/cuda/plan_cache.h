// A map that holds the plans of the sizes that were used last.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <utility>

namespace redline::tiles {

/// `Plan` frees what it owns when it is destroyed.
template <class Key, class Plan>
class PlanCache {
 public:
  explicit PlanCache(size_t most) : most_(most) {}
  /// The plan of a key, which make(plan) fills in if it is not there; the one that was used least recently makes room.
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
  using Plans = std::list<std::pair<Key, Plan>>;  // the last used first
  size_t most_;
  Plans plans_;
  std::map<Key, typename Plans::iterator> places_;
};

}  // namespace redline::tiles
