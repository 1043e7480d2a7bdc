// Decides which of the given models are in memory: within a limit, loaded when a request names them, unloaded when
// idle.
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

/// A model of any kind that can be loaded and unloaded. One thread at a time calls load() and unload().
class Resident {
 public:
  virtual ~Resident() = default;
  virtual const std::string& name() const = 0;
  /// Returns further names that requests may use for it. Must be set before it is served.
  const std::vector<std::string>& aliases() const { return aliases_; }
  void set_aliases(std::vector<std::string> aliases) { aliases_ = std::move(aliases); }
  /// Returns true if a request means this model: by its name, an alias, or either with Ollama's ":latest".
  bool is_named(std::string_view name) const;
  /// Returns false for a second use of a model that lists of models have under this name already.
  bool is_listed() const { return is_listed_; }
  void set_listed(bool is_listed) { is_listed_ = is_listed; }
  /// Returns the kind of model and its endpoints: "images; see /v1/images/generations".
  virtual std::string_view purpose() const { return ""; }
  /// Loads the model and returns the bytes that it takes: weights, and caches at their limit. The working memory of a
  /// step is not counted.
  virtual Result<int64_t> load() = 0;
  /// Unloads the model. Called only when it is not in use.
  virtual void unload() = 0;

 private:
  std::vector<std::string> aliases_;
  bool is_listed_ = true;
};

/// Reports on standard error that an adapter could be read at the first load and not again.
void note_dropped_adapter(const std::string& model, const std::string& adapter, const Status& status);

/// A request that waits for a model. The destructor cancels the wait; models without waiters are not loaded.
class PendingLoad {
 public:
  /// Sets a function that is called once, from another thread or at once, when the load has ended.
  void on_ready(std::function<void()> wake);
  bool is_done() const;
  /// Returns the status of an ended load. If it is ok, the model stays loaded as long as this object lives.
  Status status() const;

  /// Ends the load. Called once, by the Residency that returned this object. `use` keeps the model loaded.
  void finish(Status status, std::shared_ptr<void> use);

 private:
  mutable std::mutex mutex_;
  std::function<void()> wake_;
  std::optional<Status> status_;
  std::shared_ptr<void> use_;
};

struct ResidencyOptions {
  int64_t memory_bytes = 0;  ///< limit for all models together; 0: no limit
  double keep_alive_s = -1;  ///< idle time after which a model is unloaded; negative: never
  /// If true, an unknown name selects the only model of the kind that a request needs, if there is only one.
  bool takes_any_name = false;
  bool unloads() const { return memory_bytes > 0 || keep_alive_s >= 0; }
};

/// Loads and unloads models. It loads one at a time, in the order of requests, on a thread of its own. To make room it
/// unloads models that are not in use, the least recently used first. Thread-safe.
class Residency {
 public:
  enum class State : uint8_t { kUnloaded, kLoading, kLoaded, kUnloading };
  struct Entry {
    State state = State::kUnloaded;
    int64_t bytes = 0;  ///< size of the model; the expected size before it was ever loaded
    int64_t uses = 0;   ///< number of current uses
    int64_t loads = 0;  ///< number of loads so far
    /// Seconds until it is unloaded; while in use, counted from the end of the use.
    std::optional<double> expires_in_s;
  };

  explicit Residency(const ResidencyOptions& options = {});
  ~Residency();
  const ResidencyOptions& options() const;

  /// Adds a model. `expected_bytes` is used until it is loaded and its size is known.
  void add(std::shared_ptr<Resident> model, int64_t expected_bytes);
  /// Adds a model that is in memory and stays there.
  void add_loaded(std::shared_ptr<Resident> model);

  /// Loads a model on the calling thread if there is room without unloading another. Returns false if there is none.
  Result<bool> load_if_it_fits(const Resident& model);
  /// Keeps a loaded model in memory until the pointer is destroyed; null: it is not loaded. `renews`: its idle time
  /// starts again then.
  std::shared_ptr<void> use(const Resident& model, bool renews = true);
  /// Requests that the model is loaded.
  std::shared_ptr<PendingLoad> load(const Resident& model);
  /// Sets the keep-alive time of a model until it is unloaded, instead of the option. 0: unloads as soon as it is not
  /// in use; negative: never.
  void set_keep_alive(const Resident& model, double seconds);
  Entry entry(const Resident& model) const;
  /// Returns why the model of this name does not fit a request, if it is of another kind; else "".
  std::string other_purpose(const std::string& name) const;

  /// Ends the thread; waiting requests get an error. Called by the destructor.
  void close();

 private:
  struct Slot;
  struct Shared;
  struct Use;
  void run();
  const std::shared_ptr<Shared> shared_;  // outlives this object while models are in use
  std::thread thread_;
};

}  // namespace redline::server
