// Which of the given models are in memory: within a limit, loaded when a request names them, unloaded by age.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"

namespace redline::server {

/// A model that can be loaded and unloaded, of any kind. One thread at a time calls load() and unload().
class Resident {
 public:
  virtual ~Resident() = default;
  virtual const std::string& name() const = 0;
  /// Further names that requests may have for it. Set before it is served.
  const std::vector<std::string>& aliases() const { return aliases_; }
  void set_aliases(std::vector<std::string> aliases) { aliases_ = std::move(aliases); }
  /// True if a request means this model: by its name, an alias, or either with Ollama's ":latest".
  bool is_named(std::string_view name) const;
  /// What it is for, and where: "images; see /v1/images/generations".
  virtual std::string_view purpose() const { return ""; }
  /// Returns the bytes that it takes: weights, and caches at their limit. The working memory of a step is not counted.
  virtual Result<int64_t> load() = 0;
  /// Called only when the model is not in use.
  virtual void unload() = 0;

 private:
  std::vector<std::string> aliases_;
};

/// A line on standard error: an adapter could be read when the model was loaded first, and not again.
void note_dropped_adapter(const std::string& model, const std::string& adapter, const Status& status);

/// A request that waits for a model. Destroying it cancels the wait; models without waiters are not loaded.
class PendingLoad {
 public:
  /// `wake` is called once, from another thread or at once, when the load has ended.
  void on_ready(std::function<void()> wake);
  bool is_done() const;
  /// Of an ended load. Without an error the model stays loaded as long as this object lives.
  Status status() const;

  /// The load has ended; called once, by the Residency that gave it out. `use` keeps the model loaded.
  void finish(Status status, std::shared_ptr<void> use);

 private:
  mutable std::mutex mutex_;
  std::function<void()> wake_;
  std::optional<Status> status_;
  std::shared_ptr<void> use_;
};

struct ResidencyOptions {
  int64_t memory_bytes = 0;  ///< of all models together; 0: no limit
  double keep_alive_s = -1;  ///< a model that is idle for so long is unloaded; negative: never
  /// A name that no model has means the only model of the kind that a request needs, if there is only one.
  bool takes_any_name = false;
  bool unloads() const { return memory_bytes > 0 || keep_alive_s >= 0; }
};

/// Thread-safe. Loads one model at a time, in the order of requests, on a thread of its own. Makes
/// room by unloading models that are not in use, the one that was used longest ago first.
class Residency {
 public:
  enum class State : uint8_t { kUnloaded, kLoading, kLoaded, kUnloading };
  struct Entry {
    State state = State::kUnloaded;
    int64_t bytes = 0;                   ///< what it takes; expected, before it was ever loaded
    int64_t uses = 0;                    ///< of now
    int64_t loads = 0;                   ///< how often it was loaded
    std::optional<double> expires_in_s;  ///< seconds until it is unloaded; while in use, counted from the end of that
  };

  explicit Residency(const ResidencyOptions& options = {});
  ~Residency();
  const ResidencyOptions& options() const;

  /// `expected_bytes`: until it is loaded and its size is known.
  void add(std::shared_ptr<Resident> model, int64_t expected_bytes);
  /// One that is in memory and stays there.
  void add_loaded(std::shared_ptr<Resident> model);

  /// Loads it on the calling thread, if there is room without unloading another. False: there is none.
  Result<bool> load_if_it_fits(const Resident& model);
  /// Keeps a loaded model in memory until the pointer goes; null: it is not loaded. `renews`: its age starts again
  /// then.
  std::shared_ptr<void> use(const Resident& model, bool renews = true);
  /// Has the model loaded.
  std::shared_ptr<PendingLoad> load(const Resident& model);
  /// Until it is unloaded, instead of the option. 0: as soon as it is not in use; negative: never.
  void set_keep_alive(const Resident& model, double seconds);
  Entry entry(const Resident& model) const;
  /// Why the model of this name does not fit a request, if it is of another kind; else "".
  std::string other_purpose(const std::string& name) const;

  /// Ends the thread; waiting requests get an error. Called by the destructor.
  void close();

 private:
  struct Slot;
  struct Shared;
  struct Use;
  void run();
  const std::shared_ptr<Shared> shared_;  // outlives this object where something is still in use
  std::thread thread_;
};

}  // namespace redline::server
