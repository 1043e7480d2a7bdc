// A memory budget for the bodies of all requests and for the values parsed from them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace redline::server {

/// Grants bytes up to a limit. When they are used up, the client that has the most loses its largest body that is still
/// being read, unless it is itself the one that requests bytes. So a client that fills the budget with bodies that
/// never end does not block the bodies of others. Thread-safe; its leases share it.
class BodyBudget : public std::enable_shared_from_this<BodyBudget> {
 public:
  /// The bytes of one request, from its header to the end of its answer.
  class Lease {
   public:
    Lease(std::shared_ptr<BodyBudget> budget, uint64_t number) : budget_(std::move(budget)), number_(number) {}
    ~Lease() { budget_->give_back(number_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    /// Adds bytes. Returns false if there is no room, or if the lease was revoked.
    [[nodiscard]] bool grow(int64_t bytes) { return budget_->grow(number_, bytes); }
    /// Protects the lease from revocation, because the body has been read. Returns false if it was already revoked.
    [[nodiscard]] bool keep() { return budget_->keep(number_); }
    bool is_taken_away() const { return budget_->is_taken_away(number_); }

   private:
    const std::shared_ptr<BodyBudget> budget_;
    const uint64_t number_;
  };

  explicit BodyBudget(int64_t max_bytes) : max_bytes_(max_bytes) {}
  int64_t max_bytes() const { return max_bytes_; }
  int64_t used() const;
  /// Opens a lease. `taken_away` is called once from any thread, without a lock, when it is revoked for another client.
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
  /// Revokes the largest body of the client that has the most, if that is more than `own`, and returns the function to
  /// call then. nullopt: there is none.
  std::optional<std::function<void()>> take_from_largest(const std::string& except, int64_t own);
  void add(Entry& entry, int64_t bytes);

  const int64_t max_bytes_;
  mutable std::mutex mutex_;  ///< guards the members below
  int64_t used_ = 0;
  std::map<uint64_t, Entry> entries_;
  std::map<std::string, int64_t> of_client_;  ///< clients that hold bytes
  uint64_t next_number_ = 0;
};

}  // namespace redline::server
