// The memory of the bodies of all requests, and of the values that are made from them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace redline::server {

/// Gives out bytes up to a limit. When they are used up, the client that has the most loses its largest body that is
/// still being read, unless that is the client that asks: a client that fills the budget with bodies that never end
/// does not keep the bodies of others from being read. Thread-safe; shared by its leases.
class BodyBudget : public std::enable_shared_from_this<BodyBudget> {
 public:
  /// The bytes of one request, from its head to the end of its answer.
  class Lease {
   public:
    Lease(std::shared_ptr<BodyBudget> budget, uint64_t number) : budget_(std::move(budget)), number_(number) {}
    ~Lease() { budget_->give_back(number_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    /// False: there is no room for so many more bytes, or they have been taken away.
    [[nodiscard]] bool grow(int64_t bytes) { return budget_->grow(number_, bytes); }
    /// The body has been read: it is not taken away any more. False: it has been taken away.
    [[nodiscard]] bool keep() { return budget_->keep(number_); }
    bool is_taken_away() const { return budget_->is_taken_away(number_); }

   private:
    const std::shared_ptr<BodyBudget> budget_;
    const uint64_t number_;
  };

  explicit BodyBudget(int64_t max_bytes) : max_bytes_(max_bytes) {}
  int64_t max_bytes() const { return max_bytes_; }
  int64_t used() const;
  /// `taken_away` is called once from any thread, without a lock, when the bytes go to another client.
  std::shared_ptr<Lease> open(const std::string& client, std::function<void()> taken_away);

 private:
  struct Entry {
    std::string client;
    int64_t bytes = 0;
    bool is_read = false, is_taken_away = false;
    std::function<void()> taken_away;
  };
  bool grow(uint64_t number, int64_t bytes);
  bool keep(uint64_t number);
  bool is_taken_away(uint64_t number) const;
  void give_back(uint64_t number);
  /// Takes the largest body from the client that has the most, if that is more than `own`, and returns what is to be
  /// called then. nullopt: there is none.
  std::optional<std::function<void()>> take_from_largest(const std::string& except, int64_t own);
  void add(Entry& entry, int64_t bytes);

  const int64_t max_bytes_;
  mutable std::mutex mutex_;  ///< guards the members below
  int64_t used_ = 0;
  std::map<uint64_t, Entry> entries_;
  std::map<std::string, int64_t> of_client_;  ///< those that have any
  uint64_t next_number_ = 0;
};

}  // namespace redline::server
