#include "server/residency.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <vector>

namespace redline::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t mib(int64_t bytes) { return (bytes + (1 << 20) - 1) >> 20; }

Clock::duration seconds_of(double s) { return std::chrono::milliseconds(static_cast<int64_t>(std::min(s, 1e9) * 1e3)); }

}  // namespace

void note_dropped_adapter(const std::string& model, const std::string& adapter, const Status& status) {
  fmt::print(stderr, "redline: {}: the adapter {} is dropped: {}\n", model, adapter, status.message());
}

// --- PendingLoad ---

void PendingLoad::on_ready(std::function<void()> wake) {
  {
    const std::lock_guard lock(mutex_);
    if (!status_) {
      wake_ = std::move(wake);
      return;
    }
  }
  wake();
}

bool PendingLoad::is_done() const {
  const std::lock_guard lock(mutex_);
  return status_.has_value();
}

Status PendingLoad::status() const {
  const std::lock_guard lock(mutex_);
  return status_.value_or(Status());
}

void PendingLoad::finish(Status status, std::shared_ptr<void> use) {
  std::function<void()> wake;
  {
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
    use_ = std::move(use);
    wake = std::move(wake_);
  }
  if (wake) wake();
}

// --- Residency ---

bool Resident::is_named(std::string_view name) const {
  const auto is_it = [&](const std::string& own) {
    return name == own || (name.ends_with(":latest") && name.substr(0, name.size() - 7) == own);
  };
  return is_it(this->name()) || std::any_of(aliases_.begin(), aliases_.end(), is_it);
}

struct Residency::Slot {
  std::shared_ptr<Resident> model;
  bool is_fixed = false;  ///< is never unloaded
  State state = State::kUnloaded;
  int64_t bytes = 0, uses = 0, loads = 0;
  Clock::time_point last_use;
  double keep_alive_s = -1;
  std::vector<std::weak_ptr<PendingLoad>> waiting;

  bool is_idle() const { return state == State::kLoaded && !is_fixed && uses == 0; }
  bool expires() const { return is_idle() && keep_alive_s >= 0; }
  Clock::time_point end() const { return last_use + seconds_of(keep_alive_s); }
  bool is_wanted() const {
    return std::any_of(waiting.begin(), waiting.end(), [](const auto& w) { return !w.expired(); });
  }
};

struct Residency::Shared {
  explicit Shared(const ResidencyOptions& o) : options(o) {}
  const ResidencyOptions options;
  mutable std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  std::vector<std::unique_ptr<Slot>> slots;
  std::deque<Slot*> queue;  ///< models to load
  int64_t used_bytes = 0;   ///< bytes of models that are loaded, being loaded or being unloaded
  bool is_closing = false;

  Slot& slot(const Resident& model) const {
    const auto found =
        std::find_if(slots.begin(), slots.end(), [&](const auto& s) { return s->model.get() == &model; });
    REDLINE_CHECK(found != slots.end());
    return **found;
  }
  bool has_room(int64_t bytes) const { return options.memory_bytes == 0 || used_bytes + bytes <= options.memory_bytes; }
  /// Returns true if there is room after unloading all idle models.
  bool can_make_room(int64_t bytes) const {
    int64_t idle = 0;
    for (const auto& s : slots)
      if (s->is_idle()) idle += s->bytes;
    return has_room(bytes - idle);
  }
  Slot* oldest_idle() const {
    Slot* oldest = nullptr;
    for (const auto& s : slots)
      if (s->is_idle() && (!oldest || s->last_use < oldest->last_use)) oldest = s.get();
    return oldest;
  }
  Status too_large(const Slot& s) const {
    return out_of_memory("{} takes {} MiB, and --memory is {} MiB", s.model->name(), mib(s.bytes),
                         mib(options.memory_bytes));
  }
  void unload(std::unique_lock<std::mutex>& lock, Slot& s) {
    s.state = State::kUnloading;
    lock.unlock();
    s.model->unload();
    lock.lock();
    s.state = State::kUnloaded;
    used_bytes -= s.bytes;
    changed.notify_all();
  }
  /// Loads a model. Returns true if it is loaded. Returns false if it is larger than expected and there is no room.
  Result<bool> load(std::unique_lock<std::mutex>& lock, Slot& s) {
    s.state = State::kLoading;
    const int64_t expected = s.bytes;
    used_bytes += expected;
    lock.unlock();
    Result<int64_t> bytes = [&]() -> Result<int64_t> {
      try {
        return s.model->load();
      } catch (const std::exception& thrown) {
        return internal("{}", thrown.what());
      }
    }();
    lock.lock();
    used_bytes -= expected;
    s.state = State::kUnloaded;
    if (!bytes.ok()) return bytes.status();
    s.bytes = *bytes;
    if (!has_room(s.bytes)) {
      used_bytes += s.bytes;
      unload(lock, s);
      if (s.bytes > options.memory_bytes) return too_large(s);
      return false;
    }
    used_bytes += s.bytes;
    s.state = State::kLoaded;
    s.keep_alive_s = options.keep_alive_s;
    s.last_use = Clock::now();
    ++s.loads;
    return true;
  }
};

/// Keeps a model in memory while it exists.
struct Residency::Use {
  Use(std::shared_ptr<Shared> all, Slot& s, bool is_renewal) : shared(std::move(all)), slot(&s), renews(is_renewal) {
    ++slot->uses;  // the caller holds the mutex
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    const std::lock_guard lock(shared->mutex);
    --slot->uses;
    if (renews) slot->last_use = Clock::now();
    shared->changed.notify_all();
  }
  const std::shared_ptr<Shared> shared;
  Slot* const slot;
  const bool renews;
};

Residency::Residency(const ResidencyOptions& options) : shared_(std::make_shared<Shared>(options)) {}

Residency::~Residency() { close(); }

const ResidencyOptions& Residency::options() const { return shared_->options; }

void Residency::close() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->is_closing = true;
    shared_->changed.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Residency::add(std::shared_ptr<Resident> model, int64_t expected_bytes) {
  const std::lock_guard lock(shared_->mutex);
  auto slot = std::make_unique<Slot>();
  slot->model = std::move(model);
  slot->bytes = expected_bytes;
  shared_->slots.push_back(std::move(slot));
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void Residency::add_loaded(std::shared_ptr<Resident> model) {
  const std::lock_guard lock(shared_->mutex);
  auto slot = std::make_unique<Slot>();
  slot->model = std::move(model);
  slot->is_fixed = true;
  slot->state = State::kLoaded;
  slot->loads = 1;
  shared_->slots.push_back(std::move(slot));
}

Result<bool> Residency::load_if_it_fits(const Resident& model) {
  std::unique_lock lock(shared_->mutex);
  Slot& s = shared_->slot(model);
  if (s.state != State::kUnloaded) return true;
  if (!shared_->has_room(s.bytes)) return false;
  return shared_->load(lock, s);
}

std::shared_ptr<void> Residency::use(const Resident& model, bool renews) {
  const std::lock_guard lock(shared_->mutex);
  Slot& s = shared_->slot(model);
  if (s.state != State::kLoaded) return nullptr;
  return std::make_shared<Use>(shared_, s, renews);
}

std::shared_ptr<PendingLoad> Residency::load(const Resident& model) {
  auto pending = std::make_shared<PendingLoad>();
  std::shared_ptr<void> use;
  {
    const std::lock_guard lock(shared_->mutex);
    Slot& s = shared_->slot(model);
    if (shared_->is_closing) {
      pending->finish(cancelled("the server is stopping"), nullptr);
      return pending;
    }
    if (s.state == State::kLoaded) {
      use = std::make_shared<Use>(shared_, s, true);
    } else {
      std::erase_if(s.waiting, [](const auto& w) { return w.expired(); });
      s.waiting.push_back(pending);
      if (std::find(shared_->queue.begin(), shared_->queue.end(), &s) == shared_->queue.end())
        shared_->queue.push_back(&s);
      shared_->changed.notify_all();
    }
  }
  if (use) pending->finish({}, std::move(use));
  return pending;
}

void Residency::set_keep_alive(const Resident& model, double seconds) {
  const std::lock_guard lock(shared_->mutex);
  shared_->slot(model).keep_alive_s = seconds;
  shared_->changed.notify_all();
}

Residency::Entry Residency::entry(const Resident& model) const {
  const std::lock_guard lock(shared_->mutex);
  const Slot& s = shared_->slot(model);
  Entry entry{s.state, s.bytes, s.uses, s.loads, std::nullopt};
  if (s.state == State::kLoaded && !s.is_fixed && s.keep_alive_s >= 0) {
    const Clock::time_point now = Clock::now(), from = s.uses > 0 ? now : s.last_use;
    entry.expires_in_s = std::max(0.0, std::chrono::duration<double>(from + seconds_of(s.keep_alive_s) - now).count());
  }
  return entry;
}

std::string Residency::other_purpose(const std::string& name) const {
  const std::lock_guard lock(shared_->mutex);
  for (const auto& s : shared_->slots)
    if (s->model->is_named(name) && !s->model->purpose().empty())
      return fmt::format("{} is a model for {}", name, s->model->purpose());
  return "";
}

void Residency::run() {
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  /// Ends the load of the first model in the queue and tells the requests that wait for it.
  const auto finish_first = [&](const Status& status) {
    Slot& s = *shared.queue.front();
    shared.queue.pop_front();
    std::vector<std::pair<std::shared_ptr<PendingLoad>, std::shared_ptr<void>>> waiting;
    for (const auto& weak : s.waiting)
      if (auto pending = weak.lock())
        waiting.emplace_back(std::move(pending),
                             status.ok() ? std::make_shared<Use>(shared_, s, true) : std::shared_ptr<Use>());
    s.waiting.clear();
    lock.unlock();
    for (auto& [pending, use] : waiting) pending->finish(status, std::move(use));
    waiting.clear();  // may destroy the last pointer to a Use, whose destructor locks the mutex
    lock.lock();
  };
  while (!shared.is_closing) {
    const auto expired = std::find_if(shared.slots.begin(), shared.slots.end(),
                                      [](const auto& s) { return s->expires() && s->end() <= Clock::now(); });
    if (expired != shared.slots.end()) {
      shared.unload(lock, **expired);
      continue;
    }
    while (!shared.queue.empty() && !shared.queue.front()->is_wanted()) {
      shared.queue.front()->waiting.clear();
      shared.queue.pop_front();
    }
    if (!shared.queue.empty()) {
      Slot& s = *shared.queue.front();
      if (s.state == State::kLoaded) {
        finish_first({});
        continue;
      }
      if (shared.options.memory_bytes > 0 && s.bytes > shared.options.memory_bytes) {
        finish_first(shared.too_large(s));
        continue;
      }
      if (s.state == State::kUnloaded && shared.has_room(s.bytes)) {
        const Result<bool> loaded = shared.load(lock, s);
        if (!loaded.ok()) finish_first(loaded.status());
        else if (*loaded) finish_first({});
        continue;
      }
      if (Slot* idle = shared.oldest_idle(); s.state == State::kUnloaded && idle && shared.can_make_room(s.bytes)) {
        shared.unload(lock, *idle);
        continue;
      }
    }
    Clock::time_point until = Clock::time_point::max();
    for (const auto& s : shared.slots)
      if (s->expires()) until = std::min(until, s->end());
    // requests in the queue may be cancelled meanwhile
    if (!shared.queue.empty()) until = std::min(until, Clock::now() + std::chrono::seconds(1));
    if (until == Clock::time_point::max()) shared.changed.wait(lock);
    else shared.changed.wait_until(lock, until);
  }
  while (!shared.queue.empty()) finish_first(cancelled("the server is stopping"));
}

}  // namespace redline::server
