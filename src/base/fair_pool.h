// Threads for work that takes long, shared fairly between those who ask for it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace redline {

/// For whom a job runs: a client, and a user of this client.
struct WorkShare {
  std::string client, user;
};

/// The next job is one of the client that has been served the least, of this client's user that has been served the
/// least, and of this user the one that came first. Service is the time of the jobs. A client or a user without jobs
/// is forgotten, and begins at the least counter of the others. Thread-safe.
class FairPool {
 public:
  using Job = std::function<void()>;
  struct Options {
    size_t threads = 1;
    const char* name = "worker";  ///< of the threads, at most 15 bytes
    /// Jobs of one client that run at once; 0: all threads but one, which waits for the others' jobs.
    size_t max_of_client = 0;
    std::function<double()> now;  ///< seconds of work of the calling thread; empty: its time on the CPU
  };
  explicit FairPool(const Options& options);
  ~FairPool() { close(); }
  FairPool(const FairPool&) = delete;
  FairPool& operator=(const FairPool&) = delete;

  /// A number that withdraw() knows; 0: the pool is closed, and the job has been dropped. The threads start with the
  /// first job. std::system_error: the system has none. A job throws nothing.
  uint64_t push(const WorkShare& share, Job job);
  /// True: the job had not begun, and is dropped.
  bool withdraw(uint64_t number);
  /// Drops the jobs that have not begun, and returns when the others have ended.
  void close();
  size_t num_waiting() const;

 private:
  struct Entry {
    uint64_t number;
    Job job;
  };
  struct User {
    double served = 0;
    std::deque<Entry> jobs;
    size_t running = 0;
  };
  struct Client {
    double served = 0;
    std::map<std::string, User> users;
    size_t running = 0, waiting = 0;
  };
  void run();
  bool can_run(const Client& client) const { return client.waiting > 0 && client.running < max_of_client_; }
  std::map<std::string, Client>::iterator next_client();

  const Options options_;
  const size_t max_of_client_;
  mutable std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  std::map<std::string, Client> clients_;  ///< those with jobs
  std::map<uint64_t, WorkShare> waiting_;
  uint64_t next_number_ = 1;
  bool is_closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace redline
