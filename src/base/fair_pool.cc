#include "base/fair_pool.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/thread_time.h"

namespace redline {
namespace {

/// Returns the smallest `served` of the clients or users in a map; 0 if it is empty.
template <class Map>
double min_served(const Map& parties) {
  double min = 0;
  bool is_first = true;
  for (const auto& [name, party] : parties)
    min = std::exchange(is_first, false) ? party.served : std::min(min, party.served);
  return min;
}

}  // namespace

FairPool::FairPool(const Options& options)
    : options_(options),
      max_of_client_(options.max_of_client > 0 ? options.max_of_client : std::max<size_t>(1, options.threads - 1)) {}

uint64_t FairPool::push(const WorkShare& share, Job job) {
  const std::lock_guard lock(mutex_);
  if (is_closing_) return 0;
  while (threads_.size() < options_.threads) threads_.emplace_back([this] { run(); });
  const double min_client = min_served(clients_);
  const auto [client, is_new] = clients_.try_emplace(share.client);
  if (is_new) client->second.served = min_client;
  const double min_user = min_served(client->second.users);
  const auto [user, is_new_user] = client->second.users.try_emplace(share.user);
  if (is_new_user) user->second.served = min_user;
  const uint64_t number = next_number_++;
  user->second.jobs.push_back({number, std::move(job)});
  ++client->second.waiting;
  waiting_.emplace(number, share);
  changed_.notify_one();
  return number;
}

bool FairPool::withdraw(uint64_t number) {
  Job dropped;  // is destroyed without the mutex
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find(number);
  if (found == waiting_.end()) return false;
  const auto client = clients_.find(found->second.client);
  const auto user = client->second.users.find(found->second.user);
  auto& jobs = user->second.jobs;
  const auto job = std::find_if(jobs.begin(), jobs.end(), [&](const Entry& entry) { return entry.number == number; });
  dropped = std::move(job->job);
  jobs.erase(job);
  --client->second.waiting;
  if (jobs.empty() && user->second.running == 0) client->second.users.erase(user);
  if (client->second.users.empty()) clients_.erase(client);
  waiting_.erase(found);
  return true;
}

void FairPool::close() {
  std::map<std::string, Client> dropped;
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    waiting_.clear();
    for (auto& [name, client] : clients_) {
      client.waiting = 0;
      for (auto& [user_name, user] : client.users) dropped[name].users[user_name].jobs.swap(user.jobs);
    }
    threads.swap(threads_);
    changed_.notify_all();
  }
  dropped.clear();
  for (std::thread& thread : threads) thread.join();
}

size_t FairPool::num_waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

std::map<std::string, FairPool::Client>::iterator FairPool::next_client() {
  auto best = clients_.end();
  for (auto client = clients_.begin(); client != clients_.end(); ++client)
    if (can_run(client->second) && (best == clients_.end() || client->second.served < best->second.served))
      best = client;
  return best;
}

void FairPool::run() {
  pthread_setname_np(pthread_self(), options_.name);
  const auto now = [this] { return options_.now ? options_.now() : thread_seconds(); };
  std::unique_lock lock(mutex_);
  while (true) {
    auto client = clients_.end();
    changed_.wait(lock, [&] { return is_closing_ || (client = next_client()) != clients_.end(); });
    if (is_closing_) return;
    User* next = nullptr;
    std::string user_name;
    for (auto& [name, user] : client->second.users)
      if (!user.jobs.empty() && (!next || user.served < next->served)) {
        next = &user;
        user_name = name;
      }
    Entry entry = std::move(next->jobs.front());
    next->jobs.pop_front();
    waiting_.erase(entry.number);
    --client->second.waiting;
    ++client->second.running;
    ++next->running;
    lock.unlock();
    const double begin = now();
    entry.job();
    const double took = now() - begin;
    entry.job = nullptr;
    lock.lock();
    // Nodes of a map stay where they are, and those with running jobs are not erased.
    client->second.served += took;
    next->served += took;
    --client->second.running;
    --next->running;
    if (next->jobs.empty() && next->running == 0) client->second.users.erase(user_name);
    if (client->second.users.empty()) clients_.erase(client);
    changed_.notify_all();
  }
}

}  // namespace redline
