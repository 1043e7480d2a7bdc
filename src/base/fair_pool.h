// A thread pool for long jobs that shares its threads fairly among clients.
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

/// The owner of a job: a client, and a user of this client.
struct WorkShare {
  std::string client, user;
};

/// A thread pool with fair scheduling. The next job belongs to the client that has been served least, among its jobs to
/// the user that has been served least, and among that user's jobs it is the oldest. Service is measured as the time of
/// jobs. A client or user without jobs is forgotten; it later starts at the smallest counter of the others.
/// Thread-safe.
class FairPool {
 public:
  using Job = std::function<void()>;
  struct Options {
    size_t threads = 1;
    const char* name = "worker";  ///< name of the threads, at most 15 bytes
    /// Limit of jobs of one client that run at the same time. 0: all threads but one, which stays free for other
    /// clients.
    size_t max_of_client = 0;
    std::function<double()> now;  ///< returns seconds of work of the calling thread; empty: its CPU time
  };
  explicit FairPool(const Options& options);
  ~FairPool() { close(); }
  FairPool(const FairPool&) = delete;
  FairPool& operator=(const FairPool&) = delete;

  /// Adds a job and returns a number for withdraw(). 0: the pool is closed and the job has been dropped. The first job
  /// starts the threads. A job must not throw. std::system_error: the system cannot start a thread.
  uint64_t push(const WorkShare& share, Job job);
  /// Drops a job that has not started. Returns false if it has started.
  bool withdraw(uint64_t number);
  /// Drops the jobs that have not started, and returns when the running ones have ended.
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
  std::map<std::string, Client> clients_;  ///< clients that have jobs
  std::map<uint64_t, WorkShare> waiting_;
  uint64_t next_number_ = 1;
  bool is_closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace redline
